"""Export a model and its tokenizer as one TensorFlow SavedModel, from text to text, that runs without keras_seq.

The functions of the graph are those of `text_graph.py`.
"""

import os
import pathlib

from keras_seq import checks
from keras_seq.files import atomic_folder, is_free


def export_saved_model(model, tokenizer, path: str | os.PathLike) -> None:
    """Write a model and its tokenizer as a SavedModel folder, atomically."""
    path = pathlib.Path(path)
    if not is_free(path):
        raise ValueError(f"{path} exists already; expected the name of a new folder, or an empty one.")
    if "[" in str(path.absolute()):
        raise ValueError(f"{path.absolute()} has a '[': TensorFlow could not load it; expected another path.")
    checks.tensorflow_backend("A SavedModel")
    from keras_seq.saving.text_graph import ExportedTextGenerator  # here, as other backends do without TensorFlow

    with atomic_folder(path) as temporary:
        ExportedTextGenerator(model, tokenizer).save(temporary)
