"""LSTM and GRU by torch's own fused operations, on the weights of the layer: all time steps in one call.

torch's matrices are the transposed kernels of Keras, `[gates units, D]`, with the gates of the LSTM in Keras's order
(input, forget, candidate, output) and those of the GRU in another (reset, update, candidate). Its second bias is that
of the recurrent matmul, which Keras has for the GRU only. An LSTM's kernels lie in memory column by column, so that
torch's matrices are views of them: to copy them, and their gradients, takes as long as a tenth of a small layer.

The cell state is in float32 or wider. Only oneDNN's LSTM, on a CPU, multiplies matrices in bfloat16 beside it; all
others have one dtype for everything, so that they run in that of the state.
"""

import keras
import torch


def supports(layer, mask=None, recurrent_dropout_mask=None, training: bool | None = True) -> bool:
    """Return whether torch has the formula of this call: without a mask, dropout of the state, `torch.func.vmap`.

    Args:
        layer: A layer with `keras_layer_class`.
        mask: `[B, T]` boolean, or None.
        recurrent_dropout_mask: `[B, units]`, or None.
        training: Whether the call is one of training.
    """
    if mask is not None or recurrent_dropout_mask is not None:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:  # within `torch.func.grad` there may be a `vmap`
        return False
    # the class itself has to define keras_layer_class, because a subclass may compute something else
    return "keras_layer_class" in vars(type(layer)) and layer.keras_layer_class is not None


def apply(layer):
    """Return a function `(x, state) -> (y, state)` that runs a built layer.

    Args:
        layer: An `LSTM` or a `GRU` with the reset after the matmul.

    Returns:
        A function of `x [B, T, D]` and the state before the first time step to `(y [B, T, units], state)`.
    """
    run = _gru
    if layer.keras_layer_class is keras.layers.LSTM:
        run = _lstm
        for weight in (layer.kernel, layer.recurrent_kernel):
            parameter = weight._value  # not `value`, which is another tensor where Keras casts it
            if parameter is not None:  # as it is where Keras initializes it later
                parameter.data = parameter.data.t().contiguous().t()

    def run_fused(x, state):
        training = torch.is_grad_enabled()
        return run(x, state, layer.kernel.value, layer.recurrent_kernel.value, layer.bias.value, training)

    return run_fused


def _lstm(x, state, kernel, recurrent_kernel, bias, training):
    h, c = state
    dtype = x.dtype if _multiplies_bfloat16(x) else c.dtype
    kernel, recurrent_kernel, bias = (v.to(x.dtype).to(dtype) for v in (kernel, recurrent_kernel, bias))
    weights = kernel.t(), recurrent_kernel.t(), bias, torch.zeros_like(bias)
    states = h[None].to(dtype), c[None]
    y, last_h, c = torch.lstm(x.to(dtype), states, weights, True, 1, 0.0, training, False, True)
    return y.to(h.dtype), (last_h[0].to(h.dtype), c[0])


def _multiplies_bfloat16(x):
    """Return whether oneDNN's LSTM runs for x."""
    is_bfloat16 = x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.numel() > 0
    return is_bfloat16 and torch.backends.mkldnn.enabled and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _gru(x, h, kernel, recurrent_kernel, bias, training):
    kernel, recurrent_kernel = (_reset_first(v.to(x.dtype).to(h.dtype)).t() for v in (kernel, recurrent_kernel))
    weights = kernel, recurrent_kernel, *_reset_first(bias.to(x.dtype).to(h.dtype))
    y, h = torch.gru(x.to(h.dtype), h[None], weights, True, 1, 0.0, training, False, True)
    return y, h[0]


def _reset_first(v):
    """Return the blocks of `[..., 3 units]` in torch's order: reset gate, update gate, candidate."""
    update, reset, candidate = v.chunk(3, dim=-1)
    return torch.cat([reset, update, candidate], dim=-1)
