"""LSTM and GRU by torch's own fused operations: all time steps in one call.

torch's matrices are the transposed kernels of Keras, `[gates units, D]`, with the gates of the LSTM in Keras's order
(input, forget, candidate, output) and those of the GRU in another (reset, update, candidate). Its second bias is that
of the recurrent matmul, which Keras has for the GRU only. An LSTM's kernels lie in memory column by column, so that
torch's matrices are views of them: to copy them, and their gradients, takes as long as a tenth of a small layer.

The cell state is in float32 or wider. Only oneDNN's LSTM, on a CPU, multiplies matrices in bfloat16 beside it; all
others have one dtype for everything, so that they run in that of the state.

torch.compile would unroll the time steps, at half the speed: in its graphs these operations are called eagerly.
"""

import warnings

import torch
from keras import ops
from torch._C._functorch import peek_interpreter_stack

from keras_seq.ops.dispatch import cpu_multiplies_bfloat16
from keras_seq.ops.fused_rnn import fused_rnn, stored_for_fused_rnn

# cuDNN joins the weights of a layer at every call; the advice to use a method of torch.nn.RNN is not for our users.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")


def is_not_transformed(kind, x, state, kernel, recurrent_kernel, bias, training=None) -> bool:
    """Return whether this is outside of `torch.func.grad`, in which there may be a `vmap`, which has no LSTM."""
    return peek_interpreter_stack() is None


@fused_rnn.on("torch", supports=is_not_transformed)
@torch.compiler.disable
def torch_rnn(kind, x, state, kernel, recurrent_kernel, bias, training=None):
    """Run torch's LSTM or GRU."""
    weights = (ops.convert_to_tensor(v, x.dtype) for v in (kernel, recurrent_kernel, bias))
    return (_lstm if kind == "lstm" else _gru)(x, state, *weights, torch.is_grad_enabled())


@stored_for_fused_rnn.on("torch")
def by_columns(matrix):
    """Return a matrix of the same numbers that lies in memory column by column."""
    return matrix.t().contiguous().t()


def _lstm(x, state, kernel, recurrent_kernel, bias, with_gradient):
    h, c = state
    dtype = x.dtype if _multiplies_bfloat16(x) else c.dtype
    kernel, recurrent_kernel, bias = (v.to(dtype) for v in (kernel, recurrent_kernel, bias))
    # cuDNN copies contiguous weights only; kernels that lie as `by_columns` leaves them are
    weights = kernel.t().contiguous(), recurrent_kernel.t().contiguous(), bias, torch.zeros_like(bias)
    states = h[None].to(dtype), c[None]
    y, last_h, c = torch.lstm(x.to(dtype), states, weights, True, 1, 0.0, with_gradient, False, True)
    return y.to(h.dtype), (last_h[0].to(h.dtype), c[0])


def _multiplies_bfloat16(x):
    """Return whether oneDNN's LSTM runs for x."""
    is_bfloat16 = x.dtype == torch.bfloat16 and x.device.type == "cpu" and x.numel() > 0
    return is_bfloat16 and torch.backends.mkldnn.enabled and cpu_multiplies_bfloat16()


def _gru(x, h, kernel, recurrent_kernel, bias, with_gradient):
    kernel, recurrent_kernel = (_reset_first(v.to(h.dtype)).t().contiguous() for v in (kernel, recurrent_kernel))
    weights = kernel, recurrent_kernel, *_reset_first(bias.to(h.dtype))
    y, h = torch.gru(x.to(h.dtype), h[None], weights, True, 1, 0.0, with_gradient, False, True)
    return y, h[0]


def _reset_first(v):
    """Return the blocks of `[..., 3 units]` in torch's order: reset gate, update gate, candidate."""
    update, reset, candidate = v.chunk(3, dim=-1)
    return torch.cat([reset, update, candidate], dim=-1)
