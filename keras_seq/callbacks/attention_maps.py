"""Show which positions attend to which, and how widely, in every attention layer of a model.

    entropy[b, h, t] = -sum over s of  weights[b, h, t, s] log weights[b, h, t, s]       nats

The entropy is 0 for a position that attends to one other, log n for one that attends to n equally.
"""

import functools
from collections.abc import Sequence

import keras
import numpy as np

from keras_seq.callbacks.diagnostics import Diagnostic, model_arguments
from keras_seq.interpretability.activations import attention_layers, attention_weights
from keras_seq.layers import CrossAttention
from keras_seq.tracking.summaries import DPI, LABEL_STYLE, Summaries, label, to_pixels

IMAGE_PIXELS = 350  # width and height of a head's image: as large as TensorBoard first shows it
MAX_POSITIONS, MAX_HEADS, MAX_LABEL_CHARS = 16, 4, 8  # positions of an image, heads of a layer, characters of a token
CHARACTER_PIXELS, TITLE_PIXELS = 7, 26
DESCRIPTIONS = {
    "attention": "Attention of the query positions (rows) to the key positions (columns) of one head, in the first row "
    "of the data; dark is 1, white is masked, and weak attention is enhanced (color is the square root).",
    "attention_entropy": "Entropy in nats of the attention of each position and head: 0 attends to one position, log n "
    "to n equally.",
    "attention_entropy_mean": "Mean entropy in nats of the attention of a layer: 0 attends to one position, log n to n "
    "equally.",
}


class AttentionMaps(Diagnostic):
    """Write images `attention/LAYER` of the heads on the first row of x, and a histogram of all rows' entropies.

    ```python
    AttentionMaps(windows[:16], tokens=list(text[:64]), log_dir="logs/mine")
    ```

    The mean entropy is the scalar `attention_entropy_mean/LAYER`. Layers are `TransformerBlock`,
    `MultiHeadSelfAttention` and `CrossAttention` of keras_seq, `MultiHeadAttention` and `GroupQueryAttention` of
    `keras.layers` (without flash attention, which returns no weights), at any depth of the model.

    Args:
        x: A small batch of the model's inputs, such as ids `[B, T]`.
        tokens: Text of each token of the first row, to label the axes of the images; not those of a model with
            cross-attention, whose layers read two texts.
        **kwargs: Arguments of `Diagnostic`.
    """

    def __init__(self, x, tokens: Sequence[str] = (), **kwargs):
        super().__init__(**kwargs)
        self.x, self.tokens = x, list(tokens)

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model has no attention layer, or takes another number of inputs than x has."""
        if not attention_layers(model):
            return "attention layer of keras_seq or keras.layers"
        return model_arguments(model, len(keras.tree.flatten(self.x)))

    def try_model(self, model: keras.Model) -> None:
        """Call the model on x."""
        model(self.x, training=False)

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return the images, entropies and mean entropies of all attention layers."""
        scalars, images, histograms = {}, {}, {}
        reads_two = any(isinstance(layer, CrossAttention) for layer in attention_layers(model))
        tokens = () if reads_two else self.tokens
        for name, weights in attention_weights(model, self.x).items():
            values = entropy(weights)
            scalars[f"attention_entropy_mean/{name}"] = float(values.mean(dtype="float64"))
            histograms[f"attention_entropy/{name}"] = values
            images[f"attention/{name}"] = plot_heads(name, weights[0], tokens)
        return Summaries(scalars, {}, images, histograms, {}, DESCRIPTIONS)


def entropy(weights: np.ndarray) -> np.ndarray:
    """Return the entropy in nats over the last axis; 0 for rows of zeros."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(axis=-1)


def plot_heads(name: str, weights: np.ndarray, tokens: Sequence[str] = ()) -> np.ndarray:
    """Plot the heads of one layer, an image each, on one scale, on which weak attention is enhanced.

    Titles and labels are drawn once: text takes most of the time.
    """
    import matplotlib  # here, as only plots need it

    weights = weights[:MAX_HEADS, :MAX_POSITIONS, :MAX_POSITIONS]
    heads, rows, columns = weights.shape
    labels = tuple(label(token)[:MAX_LABEL_CHARS] for token in tokens)
    margin, width, height = _box(labels)
    colors = matplotlib.colormaps["Oranges"](np.sqrt(weights), bytes=True)[..., :3]
    colors = np.where(weights[..., None] > 0, colors, 255)
    cells = np.ix_(range(heads), np.arange(height) * rows // height, np.arange(width) * columns // width)
    images = _draw_labels(name, heads, rows, columns, labels).copy()
    box = images[:, TITLE_PIXELS : TITLE_PIXELS + height, margin : margin + width]
    np.minimum(box, colors[cells], out=box)  # the frame stays
    return images


def _box(labels):
    """Return the left margin of a head's map, its width and its height, in pixels."""
    margin = CHARACTER_PIXELS * max(map(len, labels), default=0) + 8  # left and, with a little more, below
    return margin, IMAGE_PIXELS - margin - 4, IMAGE_PIXELS - margin - 4 - TITLE_PIXELS


@functools.lru_cache(maxsize=64)
def _draw_labels(name, heads, rows, columns, labels):
    """Return the images without the maps, drawn under one pair of axes: separate ones take five times as long."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    margin, width, height = _box(labels)
    style = {**LABEL_STYLE, "fontsize": 8}
    rotation = 90 if max(map(len, labels), default=0) > 1 else 0
    figure = Figure(figsize=(IMAGE_PIXELS / DPI, heads * IMAGE_PIXELS / DPI))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, IMAGE_PIXELS), ylim=(heads * IMAGE_PIXELS, 0))
    axes.axis("off")
    for n in range(heads):
        top = n * IMAGE_PIXELS + TITLE_PIXELS
        axes.add_patch(Rectangle((margin, top), width, height, fill=False, edgecolor="0.8"))
        axes.text(margin, top - 8, f"{name}, head {n + 1}", fontsize=9)
        for row, text in enumerate(labels[:rows]):
            y = top + (row + 0.5) * height / rows
            axes.text(margin - 4, y, text, ha="right", va="center_baseline", **style)
        for column, text in enumerate(labels[:columns]):
            x = margin + (column + 0.5) * width / columns
            axes.text(x, top + height + 3, text, ha="center", va="top", rotation=rotation, **style)
    return to_pixels(figure).reshape(heads, IMAGE_PIXELS, IMAGE_PIXELS, 3)
