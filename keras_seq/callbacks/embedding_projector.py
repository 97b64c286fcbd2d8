"""Write embeddings for TensorBoard's Projector tab, which shows which tokens are close to each other.

    projector_config.pbtxt       names the two files beside it, for each embedding layer
    embedding.tsv                one line per token: its vector
    embedding_metadata.tsv       one line per token: its label, class and id

Keras's own callback names a checkpoint tensor that does not exist (keras issue 20210); text files always work.
"""

import pathlib
import unicodedata
from collections.abc import Sequence

import keras
from google.protobuf import text_format
from keras import ops
from tensorboard.plugins import projector

from keras_seq.atomic_files import write_text
from keras_seq.layers.introspection import named_layers
from keras_seq.tokenizers.show_whitespace import show_whitespace

TOKEN_CLASSES = {
    "Ll": "lower case",
    "Lu": "upper case",
    "L": "letter",
    "N": "digit",
    "P": "punctuation",
    "Z": "white space",
}


class EmbeddingProjector(keras.callbacks.Callback):
    """Write the token embeddings of a model, with a label for each id, at the end of each epoch.

    ```python
    EmbeddingProjector(tokenizer, "logs/mine")
    ```

    Args:
        tokenizer: Tokenizer of the ids, or a list with the text of each id.
        log_dir: Folder of the run. TensorBoard looks for embeddings in folders with event files.
    """

    def __init__(self, tokenizer, log_dir: str | pathlib.Path):
        super().__init__()
        self.tokens = list(getattr(tokenizer, "vocabulary", tokenizer))
        self.log_dir = pathlib.Path(log_dir)

    def on_train_begin(self, logs=None):
        """Print a message if there will be nothing to show."""
        if not _embeddings(self.model, len(self.tokens)):
            print(
                f"EmbeddingProjector shows nothing of {self.model.name}, which has no Embedding of {len(self.tokens)} "
                "rows."
            )

    def on_epoch_end(self, epoch, logs=None):
        """Write the embeddings."""
        self.write(self.model)

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
        for name, layer in embeddings.items():
            file = name.replace("/", "_")
            vectors = ops.convert_to_numpy(ops.cast(layer.embeddings, "float32"))
            lines = ("\t".join(f"{value:.7g}" for value in vector) for vector in vectors)
            write_text(self.log_dir / f"{file}.tsv", "\n".join(lines) + "\n")
            write_text(self.log_dir / f"{file}_metadata.tsv", metadata(self.tokens))
            config.embeddings.add(
                tensor_name=name,
                tensor_path=f"{file}.tsv",
                tensor_shape=vectors.shape,
                metadata_path=f"{file}_metadata.tsv",
            )
        write_text(self.log_dir / "projector_config.pbtxt", text_format.MessageToString(config))
        return [*embeddings]


def _embeddings(model, vocabulary_size):
    def has_row_per_token(layer):
        return isinstance(layer, keras.layers.Embedding) and layer.input_dim == vocabulary_size

    return {name: layer for name, layer in named_layers(model) if has_row_per_token(layer)}


def metadata(tokens: Sequence[str]) -> str:
    """Return the labels in the projector's format: tab-separated, one line per token under a header."""
    rows = [
        ("token", "class", "id"),
        *((show_whitespace(token), token_class(token), str(n)) for n, token in enumerate(tokens)),
    ]
    return "".join("\t".join(row) + "\n" for row in rows)


def token_class(token: str) -> str:
    """Return the class of a token's first character, to color by."""
    if token[:1] in ("\n", "\t", "\r"):
        return "white space"
    category = unicodedata.category(token[:1] or "\0")
    return TOKEN_CLASSES.get(category) or TOKEN_CLASSES.get(category[0]) or "symbol"
