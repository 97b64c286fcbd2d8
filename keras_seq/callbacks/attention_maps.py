"""Who attends to whom, and how widely, in every attention layer of a model.

    entropy[b, h, t] = -sum over s of  weights[b, h, t, s] log weights[b, h, t, s]       nats

0: a position looks at one other; log n: at n others alike.
"""

import keras
import numpy as np
from keras import ops
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from keras_seq import kernels
from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.layer_hooks import record_calls
from keras_seq.callbacks.render import LETTERS, label, to_pixels
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention
from keras_seq.layers.introspection import named_layers
from keras_seq.tracking.summaries import Summaries

KERAS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
MAX_POSITIONS = 16  # positions in a picture: as many as can be read where TensorBoard shows it small
MAX_HEADS = 8  # in a picture
MAX_LABEL_CHARS = 8  # letters of a token
CELL, GAP, LETTER = 0.1, 3, 0.065  # inches of a cell, cells between heads, inches of a letter


class AttentionMaps(Diagnostic):
    """A picture `attention/LAYER` of the heads on the first row of x, and a histogram of the entropies on all rows.

    ```python
    AttentionMaps(windows[:16], pieces=list(text[:64]), log_dir="logs/mine")
    ```

    The mean entropy stands under Scalars, as `mean_attention_entropy/LAYER`. Layers are `TransformerBlock`,
    `MultiHeadSelfAttention` and `CrossAttention` of keras_seq, `MultiHeadAttention` and `GroupQueryAttention` of
    `keras.layers` (without flash attention, which has no weights to tell), wherever they stand in the model.

    Args:
        x: a small batch of what the model takes, such as ids `[B, T]`.
        pieces: the text of each token of the first row, to be written along the pictures.
        **kwargs: those of `Look`.
    """

    def __init__(self, x, pieces=(), **kwargs):
        super().__init__(**kwargs)
        self.x, self.pieces = x, list(pieces)

    def missing_requirement(self, model):
        return None if _attention_layers(model) else "attention layer of keras_seq or keras.layers"

    def compute_summaries(self, model):
        scalars, images, histograms = {}, {}, {}
        for name, weights in attention_weights(model, self.x).items():
            values = entropy(weights)
            scalars[f"mean_attention_entropy/{name}"] = float(values.mean(dtype="float64"))
            histograms[f"attention_entropy/{name}"] = values
            images[f"attention/{name}"] = plot_heads(name, weights[0], self.pieces)
        return Summaries(scalars, {}, images, histograms)


def _attention_layers(model):
    kinds = (MultiHeadSelfAttention, CrossAttention, *KERAS)
    return {layer: name for name, layer in named_layers(model) if isinstance(layer, kinds) and not _flash(layer)}


def _flash(layer):
    return isinstance(layer, KERAS) and bool(layer.get_config().get("flash_attention"))


def attention_weights(model, x) -> dict[str, np.ndarray]:
    """The weights `[B, H, T, S]` of every attention layer, float32, by its name in the model.

    Args:
        model: any Keras model with attention layers of keras_seq or keras.layers.
        x: what it takes.
    """
    names = _attention_layers(model)
    if not names:
        return {}
    ours = [layer for layer in names if not isinstance(layer, KERAS)]
    theirs = [layer for layer in names if isinstance(layer, KERAS)]
    with record_calls(ours, "attend") as calls, record_calls(theirs, "call", scores=True) as more, kernels.disabled():
        model(x, training=False)  # and no kernel, which has no weights to tell
    found = {layer: weights for layer, _, _, (_, weights) in calls + more}
    return {name: ops.convert_to_numpy(ops.cast(found[layer], "float32")) for layer, name in names.items()}


def entropy(weights) -> np.ndarray:
    """The nats of each distribution over the last axis; 0 where nothing is attended to."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def plot_heads(name, maps, pieces=()) -> np.ndarray:
    """The heads `[H, T, S]` of one layer as pixels, on one scale; weak attention is lifted, so that it can be seen.

    All heads are one image under one pair of axes: panes of their own take five times as long to draw.
    """
    maps = maps[:MAX_HEADS, :MAX_POSITIONS, :MAX_POSITIONS]
    (heads, height, width), columns = maps.shape, 2 if len(maps) <= 4 else 4
    columns = min(columns, heads)
    corners = [((n // columns) * (height + GAP), (n % columns) * (width + GAP)) for n in range(heads)]
    tiled = np.full((corners[-1][0] + height, columns * (width + GAP) - GAP), np.nan)
    for (top, left), head in zip(corners, maps, strict=True):
        tiled[top : top + height, left : left + width] = np.where(head > 0, head, np.nan)  # unseen stays white
    labels = [label(piece)[:MAX_LABEL_CHARS] for piece in pieces]
    letters = LETTER * max(map(len, labels), default=0) + 0.1  # inches beside and below
    across, down = CELL * tiled.shape[1], CELL * tiled.shape[0]
    inches = max(3.2, letters + across + 0.65), letters + down + 0.6
    figure = Figure(figsize=inches)
    axes = figure.add_axes((letters / inches[0], letters / inches[1], across / inches[0], down / inches[1]))
    image = axes.imshow(tiled, cmap="Oranges", norm=PowerNorm(0.5, 0, 1), aspect="auto")
    axes.axis("off")
    for n, (top, left) in enumerate(corners):
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor="0.8", clip_on=False))
        axes.text(left + width / 2 - 0.5, top - 0.8, f"head {n + 1}", ha="center", va="bottom", fontsize=8)
        for at, text in enumerate(labels[:height] if left == 0 else ()):
            axes.text(-1, top + at, text, ha="right", va="center", **LETTERS)
        for at, text in enumerate(labels[:width] if n + columns >= heads else ()):
            turned = {"rotation": 90} if letters > 2 * LETTER + 0.1 else {}
            axes.text(left + at, top + height - 0.3, text, ha="center", va="top", **turned, **LETTERS)
    scale = figure.add_axes((1 - 0.5 / inches[0], 0.25, 0.12 / inches[0], 0.5))
    figure.colorbar(image, cax=scale, ticks=[0, 0.05, 0.2, 0.5, 1]).ax.tick_params(labelsize=7)
    figure.suptitle(f"{name}: where a row looks", fontsize=9, y=1 - 0.08 / inches[1])
    return to_pixels(figure)
