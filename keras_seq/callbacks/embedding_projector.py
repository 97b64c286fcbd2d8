"""The embedding under TensorBoard's Projector tab: which tokens lie near each other?

    projector_config.pbtxt       names the two files beside it, once for each embedding layer
    embedding.tsv                a line a token: its vector
    embedding_metadata.tsv       a line a token: its label, kind and id

Keras's own callback names a checkpoint tensor that is not there (keras issue 20210); text files are read always.
"""

import pathlib
import unicodedata

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
    """Writes the embeddings of a model with a label for each id, at the end of each epoch.

    ```python
    Projector(vocabulary, "logs/mine")
    ```

    Args:
        tokenizer: the `Vocabulary` or other tokenizer of the ids, or a list of what each id stands for.
        log_dir: the run's folder. TensorBoard looks for embeddings in folders that hold event files.

    `write(model)` writes them at any other time; it returns the names of the embeddings that it found: those of
    `Embedding` layers with a row for each token.
    """

    def __init__(self, tokenizer, log_dir):
        super().__init__()
        self.tokens = list(getattr(tokenizer, "vocabulary", tokenizer))
        self.log_dir = pathlib.Path(log_dir)

    def on_train_begin(self, logs=None):
        """Says so if there will be nothing to see."""
        if not _embeddings(self.model, len(self.tokens)):
            print(f"Projector shows nothing of {self.model.name}, which has no Embedding of {len(self.tokens)} rows.")

    def on_epoch_end(self, epoch, logs=None):
        """Writes them anew."""
        self.write(self.model)

    def write(self, model) -> list[str]:
        """Writes the files; the names of the embeddings."""
        found = _embeddings(model, len(self.tokens))
        if not found:
            return []
        self.log_dir.mkdir(parents=True, exist_ok=True)
        config = projector.ProjectorConfig()
        for name, layer in found.items():
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
        return [*found]


def _embeddings(model, size):
    def fits(layer):
        return isinstance(layer, keras.layers.Embedding) and layer.input_dim == size

    return {name: layer for name, layer in named_layers(model) if fits(layer)}


def metadata(tokens) -> str:
    """The labels as the projector reads them: a line a token under a header, columns apart by tabs."""
    rows = [
        ("token", "kind", "id"),
        *((show_whitespace(token), token_class(token), str(n)) for n, token in enumerate(tokens)),
    ]
    return "".join("\t".join(row) + "\n" for row in rows)


def token_class(token) -> str:
    """What the first letter of a token is, to colour by."""
    if token[:1] in ("\n", "\t", "\r"):
        return "white space"
    category = unicodedata.category(token[:1] or "\0")
    return TOKEN_CLASSES.get(category) or TOKEN_CLASSES.get(category[0]) or "sign"
