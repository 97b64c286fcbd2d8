"""Save, load and export models: `.keras` files, untrusted ones included, ONNX, LiteRT, SavedModel, torch."""

from keras_seq.saving.exporter import export
from keras_seq.saving.keras_file import UntrustedModelError, load_untrusted_model, save_model

__all__ = [
    "UntrustedModelError",
    "export",
    "load_untrusted_model",
    "save_model",
]
