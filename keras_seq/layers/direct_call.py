"""Base class of layers that are called inside of others, many times in a step."""

from keras_seq import kernels
from keras_seq.layers.matrix import KeepsMatrixModes
from keras_seq.layers.onnx_refusal import refuse_onnx_export


class DirectCall(KeepsMatrixModes):
    """Base class of layers that need not be called through Keras where that only takes time.

    List it before a Keras class. `call` casts weights to the dtype of the input, and passes `training` on;
    `float_weight` names one of the layer's own weights, if it has any, whose dtype shows what Keras's autocast does.

    Args:
        **kwargs: Those of the other base class.
    """

    float_weight = None

    def __call__(self, *args, **kwargs):
        """Apply the layer."""
        direct_call = kernels.dispatch("direct_call", None, self, args, kwargs)
        if direct_call is None:
            return super().__call__(*args, **kwargs)
        if not self.exports_to_onnx:
            refuse_onnx_export(self)
        return direct_call(self, args, kwargs)
