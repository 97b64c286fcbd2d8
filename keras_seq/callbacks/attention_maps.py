"""Show which positions attend to which, and how widely, in every attention layer of a model.

    entropy[b, h, t] = -sum over s of  weights[b, h, t, s] log weights[b, h, t, s]       nats

The entropy is 0 for a position that attends to one other, log n for one that attends to n equally.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from keras_seq import kernels
from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.callbacks.layer_hooks import record_calls
from keras_seq.callbacks.render import LABEL_STYLE, label, to_pixels
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention
from keras_seq.layers.introspection import named_layers
from keras_seq.tracking.summaries import Summaries

KERAS_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
MAX_POSITIONS = 16  # in an image: as many as are legible at the size in which TensorBoard first shows it
MAX_HEADS = 8  # in an image
MAX_LABEL_CHARS = 8  # of a token
CELL_INCHES, GAP_CELLS, CHARACTER_INCHES = 0.1, 3, 0.065  # width of a cell, cells between heads, width of a character


class AttentionMaps(Diagnostic):
    """Write an image `attention/LAYER` of the heads on the first row of x, and a histogram of all rows' entropies.

    ```python
    AttentionMaps(windows[:16], tokens=list(text[:64]), log_dir="logs/mine")
    ```

    The mean entropy is the scalar `attention_entropy_mean/LAYER`. Layers are `TransformerBlock`,
    `MultiHeadSelfAttention` and `CrossAttention` of keras_seq, `MultiHeadAttention` and `GroupQueryAttention` of
    `keras.layers` (without flash attention, which returns no weights), at any depth of the model.

    Args:
        x: A small batch of the model's inputs, such as ids `[B, T]`.
        tokens: Text of each token of the first row, to label the axes of the images.
        **kwargs: Arguments of `Diagnostic`.
    """

    def __init__(self, x, tokens: Sequence[str] = (), **kwargs):
        super().__init__(**kwargs)
        self.x, self.tokens = x, list(tokens)

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model has no attention layer."""
        return None if _attention_layers(model) else "attention layer of keras_seq or keras.layers"

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the images, entropies and mean entropies of all attention layers."""
        scalars, images, histograms = {}, {}, {}
        for name, weights in attention_weights(model, self.x).items():
            values = entropy(weights)
            scalars[f"attention_entropy_mean/{name}"] = float(values.mean(dtype="float64"))
            histograms[f"attention_entropy/{name}"] = values
            images[f"attention/{name}"] = plot_heads(name, weights[0], self.tokens)
        return Summaries(scalars, {}, images, histograms)


def _attention_layers(model):
    classes = (MultiHeadSelfAttention, CrossAttention, *KERAS_LAYERS)
    return {layer: name for name, layer in named_layers(model) if isinstance(layer, classes) and not _flash(layer)}


def _flash(layer):
    return isinstance(layer, KERAS_LAYERS) and bool(layer.get_config().get("flash_attention"))


def attention_weights(model: keras.Model, x) -> dict[str, np.ndarray]:
    """Return the weights `[B, H, T, S]` of every attention layer, float32, by its name in the model.

    Args:
        model: Any Keras model with attention layers of keras_seq or keras.layers.
        x: A batch of its inputs.
    """
    names = _attention_layers(model)
    if not names:
        return {}
    own_layers = [layer for layer in names if not isinstance(layer, KERAS_LAYERS)]
    keras_layers = [layer for layer in names if isinstance(layer, KERAS_LAYERS)]
    with (
        record_calls(own_layers, "attend") as own_calls,
        record_calls(keras_layers, "call", scores=True) as keras_calls,
        kernels.disabled(),  # the optimized kernels do not return attention weights
    ):
        model(x, training=False)
    weights = {layer: scores for layer, _, _, (_, scores) in own_calls + keras_calls}
    return {name: ops.convert_to_numpy(ops.cast(weights[layer], "float32")) for layer, name in names.items()}


def entropy(weights: np.ndarray) -> np.ndarray:
    """Return the entropy in nats over the last axis; 0 for rows of zeros."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def plot_heads(name: str, weights: np.ndarray, tokens: Sequence[str] = ()) -> np.ndarray:
    """Plot the heads of one layer on one scale, on which weak attention is enhanced.

    All heads are one image under one pair of axes, because separate axes take five times as long to draw.

    Args:
        name: Name of the layer, for the title.
        weights: `[H, T, S]`; the first MAX_HEADS and MAX_POSITIONS are shown.
        tokens: Text of each position, for the labels.

    Returns:
        uint8 `[height, width, 3]`.
    """
    weights = weights[:MAX_HEADS, :MAX_POSITIONS, :MAX_POSITIONS]
    (heads, height, width), columns = weights.shape, 2 if len(weights) <= 4 else 4
    columns = min(columns, heads)
    corners = [((n // columns) * (height + GAP_CELLS), (n % columns) * (width + GAP_CELLS)) for n in range(heads)]
    tiled = np.full((corners[-1][0] + height, columns * (width + GAP_CELLS) - GAP_CELLS), np.nan)
    for (top, left), head in zip(corners, weights, strict=True):
        tiled[top : top + height, left : left + width] = np.where(head > 0, head, np.nan)  # masked cells stay white
    labels = [label(token)[:MAX_LABEL_CHARS] for token in tokens]
    margin = CHARACTER_INCHES * max(map(len, labels), default=0) + 0.1  # inches, left and below
    across, down = CELL_INCHES * tiled.shape[1], CELL_INCHES * tiled.shape[0]
    inches = max(3.2, margin + across + 0.65), margin + down + 0.6
    figure = Figure(figsize=inches, layout="none")  # its axes have places, whatever the style
    axes = figure.add_axes((margin / inches[0], margin / inches[1], across / inches[0], down / inches[1]))
    image = axes.imshow(tiled, cmap="Oranges", norm=PowerNorm(0.5, 0, 1), aspect="auto")
    axes.axis("off")
    for n, (top, left) in enumerate(corners):
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor="0.8", clip_on=False))
        axes.text(left + width / 2 - 0.5, top - 0.8, f"head {n + 1}", ha="center", va="bottom", fontsize=8)
        for row, text in enumerate(labels[:height] if left == 0 else ()):
            axes.text(-1, top + row, text, ha="right", va="center", **LABEL_STYLE)
        for column, text in enumerate(labels[:width] if n + columns >= heads else ()):
            rotation = {"rotation": 90} if margin > 2 * CHARACTER_INCHES + 0.1 else {}
            axes.text(left + column, top + height - 0.3, text, ha="center", va="top", **rotation, **LABEL_STYLE)
    scale = figure.add_axes((1 - 0.5 / inches[0], 0.25, 0.12 / inches[0], 0.5))
    figure.colorbar(image, cax=scale, ticks=[0, 0.05, 0.2, 0.5, 1]).ax.tick_params(labelsize=7)
    figure.suptitle(f"{name}: attention of each row", fontsize=9, y=1 - 0.08 / inches[1])
    return to_pixels(figure)
