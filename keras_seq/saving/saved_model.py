"""Export a model and its tokenizer as one TensorFlow SavedModel, from text to text, that runs without keras_seq.

generate(prompt, max_new_tokens, temperature, seed) -> text        the text of `keras_seq.generate`
logits(text) -> [T, V]                                             row t predicts the character after character t
"""

import os
import pathlib

from keras_seq import checks
from keras_seq.atomic_files import atomic_folder, is_free


def export_saved_model(model, tokenizer, path: str | os.PathLike) -> None:
    """Write a model and its tokenizer as a SavedModel folder, atomically.

    Args:
        model: A `LanguageModel`.
        tokenizer: The `CharacterTokenizer` that the model was trained with.
        path: The folder to write: a new one, or an empty one.

    Raises:
        ValueError: The tokenizer is of another class or vocabulary size, `path` has files or a `[`, which TensorFlow
            reads as a pattern, or Keras's backend is not TensorFlow.
        OSError: The folder cannot be written; the error names `path`.
    """
    path = pathlib.Path(path)
    if not is_free(path):
        raise ValueError(f"{path} exists already; expected the name of a new folder, or an empty one.")
    if "[" in str(path.absolute()):
        raise ValueError(f"{path.absolute()} has a '[': TensorFlow could not load it; expected another path.")
    checks.tensorflow_backend("A SavedModel")
    from keras_seq.saving.text_graph import ExportedTextGenerator  # here, as other backends do without TensorFlow

    with atomic_folder(path) as temporary:
        ExportedTextGenerator(model, tokenizer).save(temporary)
