"""keras_seq: a zoo of sequence models for Keras 3.

`keras_seq.layers` are for anybody's Keras model, on any backend; `keras_seq.models` are made of them. Importing
keras_seq registers both, so that saved models load. `keras_seq.text`, `.generation` and `.training` need TensorFlow
and more, and are imported where they are used.
"""

from keras_seq import layers, models

__version__ = "0.1.0"
__all__ = ["layers", "models"]
