"""Save, load and export models: `.keras` files, untrusted ones included, SavedModel, ONNX."""

from keras_seq.saving.keras_file import UntrustedModelError, load_untrusted_model, save_model

__all__ = [
    "UntrustedModelError",
    "load_untrusted_model",
    "save_model",
]
