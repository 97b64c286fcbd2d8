"""keras_seq: a zoo of sequence models for Keras 3.

`keras_seq.layers` are for anybody's Keras model, on any backend; `keras_seq.models` are made of them. Importing
keras_seq registers both, so that saved models load. `keras_seq.text`, `.generation` and `.training` need TensorFlow
and more, and are imported where they are used.
"""

from keras_seq import layers, models

__version__ = "0.2.0"
__all__ = ["generate", "layers", "models", "score", "stream"]


def __getattr__(name):
    """`generate`, `stream` and `score`, imported where they are used: they need TensorFlow and more."""
    if name in ("generate", "stream"):
        from keras_seq import generation

        return getattr(generation, name)
    if name == "score":
        from keras_seq import evaluation

        return evaluation.score_text
    raise AttributeError(f"module 'keras_seq' has no attribute {name!r}")
