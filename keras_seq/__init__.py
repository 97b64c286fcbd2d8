"""keras_seq: a zoo of sequence models for Keras 3.

`keras_seq.layers` are for anybody's Keras model, on any backend; importing keras_seq registers them, so that
saved models load. `keras_seq.text`, `.models`, `.generation` and `.training` are imported where they are used.
"""

from keras_seq import layers

__version__ = "0.1.0"
__all__ = ["layers"]
