"""Refuse `Model.export(format="onnx")`, which leaves invalid files or wrong numbers for models of these layers.

On TensorFlow tf2onnx writes what XLA compiles as an unknown operation, without an error; on torch one length is traced,
and other lengths get wrong numbers. A layer cannot ask for what it is traced: it looks for `keras.Model.export` among
its callers.
"""

import inspect

import keras

from keras_seq import checks


def refuse_onnx_export(layer) -> None:
    """Raise in a call that `keras.Model.export(format="onnx")` makes, in whatever model the layer is."""
    if checks.is_torch_compiling():
        return
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _EXPORT and frame.f_locals.get("format") == "onnx":
            raise ValueError(message(f"{layer.name} ({type(layer).__name__})"))
        frame = frame.f_back


_EXPORT = inspect.unwrap(keras.Model.export).__code__


def message(name: str) -> str:
    """Return the error message for a layer or model of this name."""
    return (
        f'{name} cannot be exported by Model.export(format="onnx"), which would write an invalid file or wrong '
        "numbers: use keras_seq.saving.onnx_step.export_onnx for a step of a language model of SimpleRNN, GRU or LSTM "
        'layers, or format="tf_saved_model".'
    )


class NoOnnxExport:
    """Part of a Keras model of such layers; to be listed before its other base class."""

    def export(self, filepath, format: str = "tf_saved_model", *args, **kwargs) -> None:
        """Export the model, as `keras.Model.export`, to any of its formats but `"onnx"`."""
        if format == "onnx":
            raise ValueError(message(self.name))
        super().export(filepath, format, *args, **kwargs)
