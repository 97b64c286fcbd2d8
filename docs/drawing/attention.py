"""The pictures of docs/attention.md."""

import numpy as np
from keras import ops

from drawing import COLOURS, panes
from keras_seq.layers import attention
from keras_seq.layers.masks import compute_attention_mask


def masks():
    """The weights of the worked example under three masks, with their numbers."""
    x = np.array([[1, 0, 1], [0, 2, 1], [1, 1, 0]], "float32")
    q = x @ np.array([[0, 0, 1], [1, 0, 0], [1, 1, 0]], "float32")
    positions = np.arange(3)
    allowed = {
        "no mask": None,
        "causal": compute_attention_mask(positions, positions, causal=True),
        "third position is padding": compute_attention_mask(positions, np.array([[0, 1, -1]])),
    }
    figure, axes = panes(columns=3, height=2.7)
    for pane, (name, mask) in zip(axes, allowed.items(), strict=True):
        _, weights = attention(q[None, :, None], x[None, :, None], x[None, :, None], mask=mask)
        weights = ops.convert_to_numpy(weights)[0, 0]
        pane.imshow(np.where(weights > 0, weights, np.nan), cmap="Oranges", vmin=0, vmax=1)
        for (row, column), weight in np.ndenumerate(weights):
            pane.text(
                column, row, f"{weight:.3f}", ha="center", va="center", color="white" if weight > 0.6 else "black"
            )
        pane.set(title=name, xticks=positions, yticks=positions, xlabel="answers")
        pane.set_xticklabels(positions + 1)
        pane.set_yticklabels(positions + 1)
        pane.grid(False)
        pane.spines[:].set_visible(False)
    axes[0].set_ylabel("asks")
    return figure


def scale(keys=16, queries=500):
    """Largest weight and slope of the softmax over K, with and without the division by sqrt(K)."""
    key_dims = [2**n for n in range(11)]
    figure, axes = panes(columns=2, height=2.6, sharex=True)
    for colour, (name, factor) in zip(COLOURS, {"q · k": 1.0, "q · k / sqrt(K)": None}.items(), strict=False):
        found = []
        for key_dim in key_dims:
            random = np.random.default_rng(0)
            q = random.normal(size=(1, queries, 1, key_dim)).astype("float32")
            k = random.normal(size=(1, keys, 1, key_dim)).astype("float32")
            p = ops.convert_to_numpy(attention(q, k, k, scale=factor)[1])
            found.append((p.max(-1).mean(), (p * (1 - p)).sum(-1).mean()))
        for pane, values in zip(axes, zip(*found, strict=True), strict=True):
            pane.plot(key_dims, values, "o-", color=colour, markersize=3, label=name)
    axes[0].set(xscale="log", title="largest of 16 weights", xlabel="K", ylim=(0, 1))
    axes[1].set(xscale="log", title="slope of the softmax: sum of p (1 - p)", xlabel="K", ylim=(0, 1))
    axes[0].legend(frameon=False)
    return figure


FIGURES = {"masks.png": masks, "scale.svg": scale}
