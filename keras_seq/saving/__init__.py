"""Save, load and export models: `.keras` files, untrusted ones included, SavedModel, ONNX."""

from keras_seq.saving.keras_file import save_model
from keras_seq.saving.safe_loading import UntrustedModelError, load_untrusted_model

__all__ = [
    "save_model",
    "UntrustedModelError",
    "load_untrusted_model",
]
