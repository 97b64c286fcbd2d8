"""Plot the images of docs/attention.md."""

import numpy as np
from keras import ops

from keras_seq.layers import attention
from keras_seq.ops.attention import compute_attention_mask
from plots import COLORS, subplots


def plot_masks():
    """Plot the attention weights of the worked example under three masks."""
    x = np.array([[1, 0, 1], [0, 2, 1], [1, 1, 0]], "float32")
    q = x @ np.array([[0, 0, 1], [1, 0, 0], [1, 1, 0]], "float32")
    positions = np.arange(3)
    allowed = {
        "no mask": None,
        "causal": compute_attention_mask(positions, positions, causal=True),
        "third position masked": compute_attention_mask(positions, np.array([[0, 1, -1]])),
    }
    figure, axes = subplots(columns=3, height=2.7)
    for axis, (name, mask) in zip(axes, allowed.items(), strict=True):
        _, weights = attention(q[None, :, None], x[None, :, None], x[None, :, None], mask=mask)
        weights = ops.convert_to_numpy(weights)[0, 0]
        axis.imshow(np.where(weights > 0, weights, np.nan), cmap="Oranges", vmin=0, vmax=1)
        for (row, column), weight in np.ndenumerate(weights):
            axis.text(
                column, row, f"{weight:.3f}", ha="center", va="center", color="white" if weight > 0.6 else "black"
            )
        axis.set(title=name, xticks=positions, yticks=positions, xlabel="key")
        axis.set_xticklabels(positions + 1)
        axis.set_yticklabels(positions + 1)
        axis.grid(False)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("query")
    return figure


def plot_scale(keys=16, queries=500):
    """Plot the largest weight and the slope of the softmax over K, with and without the division by sqrt(K)."""
    key_dims = [2**n for n in range(11)]
    figure, axes = subplots(columns=2, height=2.6, sharex=True)
    for color, (name, factor) in zip(COLORS, {"q · k": 1.0, "q · k / sqrt(K)": None}.items(), strict=False):
        statistics = []
        for key_dim in key_dims:
            random = np.random.default_rng(0)
            q = random.normal(size=(1, queries, 1, key_dim)).astype("float32")
            k = random.normal(size=(1, keys, 1, key_dim)).astype("float32")
            p = ops.convert_to_numpy(attention(q, k, k, scale=factor)[1])
            statistics.append((p.max(-1).mean(), (p * (1 - p)).sum(-1).mean()))
        for axis, values in zip(axes, zip(*statistics, strict=True), strict=True):
            axis.plot(key_dims, values, "o-", color=color, markersize=3, label=name)
    axes[0].set(xscale="log", title="largest of 16 weights", xlabel="K", ylim=(0, 1))
    axes[1].set(xscale="log", title="slope of the softmax: sum of p (1 - p)", xlabel="K", ylim=(0, 1))
    axes[0].legend(frameon=False)
    return figure


PLOTS = {"masks.png": plot_masks, "scale.svg": plot_scale}
