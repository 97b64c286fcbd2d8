"""A dense layer whose bias gradient is summed in float32, in bfloat16 training too.

y = activation(x W + b),   db = sum over all positions of dy
"""

import keras
from keras import ops

from keras_seq import checks, kernels
from keras_seq.layers.direct_call import DirectCall
from keras_seq.layers.matrix import HasMatrices, Matrix


def dense(x, kernel, bias):
    """Compute x W + b.

    Args:
        x: `[..., D]`.
        kernel: `[D, W]`.
        bias: `[W]`, or None.

    Returns:
        `[..., W]`.
    """
    x = ops.matmul(x, kernel)
    return x if bias is None else kernels.dispatch("bias_add", ops.add, x, bias)(x, bias)


@keras.saving.register_keras_serializable(package="keras_seq")
class Dense(HasMatrices, DirectCall, keras.layers.Dense):
    """`keras.layers.Dense` with a bias gradient that is accurate in bfloat16 on TensorFlow's CPU.

    TensorFlow sums the bias gradient in bfloat16 there, which rounds small summands away: over 16,384 positions the
    gradient is 15 to 40 % wrong. Arguments and weights are those of `keras.layers.Dense`.
    """

    kernel = Matrix()
    float_weight = "kernel"

    @property
    def exports_to_onnx(self) -> bool:
        """Return whether `Model.export(format="onnx")` is right: tf2onnx does not know the erfc of gelu."""
        has_erfc = keras.backend.backend() == "tensorflow" and self.activation is keras.activations.gelu
        return self.matrix_mode is None and not has_erfc

    def get_config(self):
        """Return the constructor's arguments; those of LoRA are left out, because a saved matrix includes it."""
        return {key: value for key, value in super().get_config().items() if key not in ("lora_rank", "lora_alpha")}

    def call(self, inputs):
        """Map `[..., D]` to `[..., units]`."""
        args = checks.real("inputs", inputs, self.compute_dtype), self.kernel, self.bias
        x = kernels.dispatch("dense", dense, *args)(*args)
        return x if self.activation is None else self.activation(x)
