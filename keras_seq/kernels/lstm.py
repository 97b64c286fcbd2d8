"""`layers.lstm.lstm` on TensorFlow: its loop over the positions in two ways, and what is the same in both.

    da_t = what comes back to z_t + h_{t-1} U              `lstm_loops.py`, where it pays, else `lstm_unrolled.py`
    dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T]                 one matmul, where autodiff would add up T small ones

Rows do not depend on each other: the two halves of a large batch are worked on side by side, each on its own core.
Inside, the positions are the first axis: all of one position lies together.
"""

import tensorflow as tf

from keras_seq.kernels import lstm_unrolled, lstm_xla, xla_loops
from keras_seq.kernels.batch_split import batch_halves, concat_batch, to_time_major

MAX_UNROLLED_STEPS = 256  # positions that are unrolled; beyond it the graph takes longer to build than the loop costs


def supports(z, recurrent_kernel, h, c, mask=None, recurrent_dropout_mask=None, activations=None):
    """Whether the twin takes these arguments: no mask, tanh and sigmoid, a known length, short or worth compiling."""
    if mask is not None or activations is not None or not z.shape[1]:
        return False
    return z.shape[1] <= MAX_UNROLLED_STEPS or xla_loops.xla_loop_is_faster(z, c)


def apply(z, recurrent_kernel, h, c, mask=None, recurrent_dropout_mask=None, activations=None):
    """The twin of `keras_seq.layers.lstm.lstm`; see there."""
    looped = xla_loops.xla_loop_is_faster(z, c)
    way, slices = lstm_xla if looped else lstm_unrolled, batch_halves(c, looped)

    @tf.custom_gradient
    def lstm(z, recurrent_kernel, h, c):  # `kept` is drawn and not learned
        z = to_time_major(z)
        done = [
            way.positions(
                z[:, rows],
                recurrent_kernel,
                h[rows],
                c[rows],
                None if recurrent_dropout_mask is None else recurrent_dropout_mask[rows],
            )
            for rows in slices
        ]
        y, last, memory = concat_batch([outputs for outputs, _ in done])

        def gradient(dy, dh, dc):
            dy = to_time_major(dy)
            backs = zip(slices, (back for _, back in done), strict=True)
            da, dh, dc = concat_batch([back(dy[:, rows], dh[rows], dc[rows]) for rows, back in backs])
            before = tf.concat([h[None], y[:-1]], axis=0)
            before = before if recurrent_dropout_mask is None else before * recurrent_dropout_mask
            return to_time_major(da), tf.tensordot(before, da, [[0, 1], [0, 1]]), dh, dc

        return (to_time_major(y), last, memory), gradient

    return lstm(z, tf.convert_to_tensor(recurrent_kernel), h, c)  # a variable read inside would need care of its own
