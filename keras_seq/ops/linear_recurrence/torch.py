"""Linear recurrences on torch's CPU: one position after the other.

The gradient is the same recurrence in reverse, as in `tensorflow.py`.
"""

import torch

from keras_seq.ops.linear_recurrence import linear_recurrence, log_linear_recurrence


def is_eager_on_cpu(a, b, h) -> bool:
    """Return whether the tensors are torch's, on a CPU, with several positions; torch.compile fuses the rounds."""
    is_eager = isinstance(a, torch.Tensor) and not torch.compiler.is_dynamo_compiling()
    return is_eager and a.device.type == "cpu" and a.shape[1] > 1


@linear_recurrence.on("torch", supports=is_eager_on_cpu)
def looped(a, b, h):
    """Compute h at every position."""
    return _Recurrence.apply(a, b, h)


@log_linear_recurrence.on("torch", supports=is_eager_on_cpu)
def direct_form(log_a, log_b, h):
    """Compute it without logarithms, whose products underflow only where they are negligible."""
    return looped(torch.exp(log_a), torch.exp(log_b), h)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(a, b, h):
        states = torch.empty_like(b)
        for a_t, b_t, h_t in zip(a.unbind(1), b.unbind(1), states.unbind(1), strict=True):
            h = torch.addcmul(b_t, a_t, h, out=h_t)
        return states

    @staticmethod
    def setup_context(ctx, inputs, states):
        a, _, h = inputs
        ctx.save_for_backward(a, h, states)

    @staticmethod
    def backward(ctx, dy):
        a, h, states = ctx.saved_tensors
        next_a = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], dim=1)
        g = _Recurrence.apply(next_a.flip(1), dy.flip(1), torch.zeros_like(h)).flip(1)
        return g * torch.cat([h[:, None], states[:, :-1]], dim=1), g, a[:, 0] * g[:, 0]

    @staticmethod
    def vmap(info, in_dims, *args):
        """Add an axis at the end: nothing is computed across axes but the second."""
        args = [
            x.unsqueeze(-1).expand(*x.shape, info.batch_size) if axis is None else x.movedim(axis, -1)
            for x, axis in zip(args, in_dims, strict=True)
        ]
        return _Recurrence.apply(*args), args[0].ndim - 1
