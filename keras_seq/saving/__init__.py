"""Save, load and export models: `.keras` files, untrusted ones included, ONNX, LiteRT, SavedModel, torch."""

from keras_seq.saving.exporter import export, export_page
from keras_seq.saving.keras_file import UntrustedModelError, load_untrusted_model, save_model

__all__ = [
    "UntrustedModelError",
    "export",
    "export_page",
    "load_untrusted_model",
    "save_model",
]
