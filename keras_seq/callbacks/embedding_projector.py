"""Write embeddings for TensorBoard's Projector tab, which shows which tokens are close to each other.

    projector_config.pbtxt       names the files beside it, for each embedding layer
    embedding.tsv                one line per token: its vector
    embedding_metadata.tsv       one line per token: its label, class and id
    tokens.png                   an image per token, drawn at its point: its label in the color of its class

The page does not begin with labels and colors, so the images show both. Keras's own callback names a checkpoint tensor
that does not exist (keras issue 20210); text files always work.
"""

import math
import pathlib
import unicodedata
from collections.abc import Sequence

import keras
from google.protobuf import text_format
from keras import ops
from tensorboard.plugins import projector

from keras_seq.callbacks.diagnostics import says_nothing
from keras_seq.files import atomic_write, write_text
from keras_seq.layers.introspection import named_layers
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.tracking.summaries import DPI, LABEL_STYLE, label

CLASSES = {  # of a token, by the beginning of its Unicode category; colors of Tableau, readable on white
    "lower case": ("Ll", "#1f77b4"),
    "upper case": ("Lu", "#d62728"),
    "letter": ("L", "#17a2b8"),
    "digit": ("N", "#2ca02c"),
    "punctuation": ("P", "#9467bd"),
    "white space": ("Z", "#8c564b"),
    "symbol": ("", "#e07b00"),
}
SPRITES = "tokens.png"
SPRITE_PIXELS, MAX_SPRITES, MAX_SPRITE_CHARS = 48, 1024, 6  # drawing an image takes 2 ms


class EmbeddingProjector(keras.callbacks.Callback):
    """Write the token embeddings of a model, with a label for each id, at the end of each epoch.

    ```python
    EmbeddingProjector(tokenizer, "logs/mine")
    ```

    Args:
        tokenizer: Tokenizer of the ids, or a list with the text of each id.
        log_dir: Folder of the run. TensorBoard looks for embeddings in folders with event files.
        model: The model to examine if `fit` trains another one that contains it; by default the one that `fit` trains.
    """

    def __init__(self, tokenizer, log_dir: str | pathlib.Path, model: keras.Model | None = None):
        super().__init__()
        self.wrapped_model = model
        self.tokens = list(getattr(tokenizer, "vocabulary", tokenizer))
        self.log_dir = pathlib.Path(log_dir)
        self._has_sprites = None  # until the first embeddings are written

    def on_train_begin(self, logs=None):
        """Print a message if there will be nothing to show."""
        if not _embeddings(self._target_model, len(self.tokens)):
            print(says_nothing("EmbeddingProjector", self._target_model, f"Embedding of {len(self.tokens)} rows"))

    def on_epoch_end(self, epoch, logs=None):
        """Write the embeddings."""
        self.write(self._target_model)

    @property
    def _target_model(self):
        return self.model if self.wrapped_model is None else self.wrapped_model

    def write(self, model: keras.Model) -> list[str]:
        """Write the embeddings of a model.

        Args:
            model: Any Keras model.

        Returns:
            The names of the `Embedding` layers with one row per token, which were written.
        """
        embeddings = _embeddings(model, len(self.tokens))
        if not embeddings:
            return []
        self.log_dir.mkdir(parents=True, exist_ok=True)
        config = projector.ProjectorConfig()
        if self._has_sprites is None and len(self.tokens) <= MAX_SPRITES:
            write_sprites(self.log_dir / SPRITES, self.tokens)
        self._has_sprites = len(self.tokens) <= MAX_SPRITES
        for name, layer in embeddings.items():
            file = name.replace("/", "_")
            vectors = ops.convert_to_numpy(ops.cast(layer.embeddings, "float32"))
            lines = ("\t".join(f"{value:.7g}" for value in vector) for vector in vectors)
            write_text(self.log_dir / f"{file}.tsv", "\n".join(lines) + "\n")
            write_text(self.log_dir / f"{file}_metadata.tsv", metadata_tsv(self.tokens))
            embedding = config.embeddings.add(
                tensor_name=name,
                tensor_path=f"{file}.tsv",
                tensor_shape=vectors.shape,
                metadata_path=f"{file}_metadata.tsv",
            )
            if self._has_sprites:
                embedding.sprite.image_path = SPRITES
                embedding.sprite.single_image_dim.extend([SPRITE_PIXELS, SPRITE_PIXELS])
        write_text(self.log_dir / "projector_config.pbtxt", text_format.MessageToString(config))
        return [*embeddings]


def _embeddings(model, vocabulary_size):
    layers = {name: layer for name, layer in named_layers(model) if isinstance(layer, keras.layers.Embedding)}
    return {name: layer for name, layer in layers.items() if layer.input_dim == vocabulary_size}


def write_sprites(path: pathlib.Path, tokens: Sequence[str]):
    """Write one PNG with the image of each token, in rows from the left."""
    from matplotlib.figure import Figure  # here, as only images need it

    columns = math.ceil(math.sqrt(len(tokens)))
    figure = Figure(figsize=(columns * SPRITE_PIXELS / DPI,) * 2, dpi=DPI)
    for n, token in enumerate(tokens):
        row, column = divmod(n, columns)
        text = label(token)[:MAX_SPRITE_CHARS]
        size = {"fontsize": 28 if len(text) < 2 else 9}
        x, y = (column + 0.5) / columns, 1 - (row + 0.5) / columns
        style = {**LABEL_STYLE, **size, "color": CLASSES[token_class(token)][1], "ha": "center", "va": "center"}
        figure.text(x, y, text, **style)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=DPI, transparent=True)


def metadata_tsv(tokens: Sequence[str]) -> str:
    """Return the labels in the projector's format: tab-separated, one line per token under a header."""
    labels = [(show_whitespace(token), token_class(token), str(n)) for n, token in enumerate(tokens)]
    return "".join("\t".join(row) + "\n" for row in [("token", "class", "id"), *labels])


def token_class(token: str) -> str:
    """Return the class of a token's first character, to color by."""
    category = "Z" if token[:1] in ("\n", "\t", "\r") else unicodedata.category(token[:1] or "\0")
    return next(name for name, (beginning, _) in CLASSES.items() if category.startswith(beginning))
