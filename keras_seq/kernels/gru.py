"""`layers.gru.gru` on TensorFlow, with the reset after the matmul: its positions by two done, and what both share.

    ds_t = what comes back to h_{t-1} U + c                `gru_loops.py`, where it pays, else `gru_unrolled.py`
    dU = [h_0 .. h_{T-1}]^T [ds_1 .. ds_T],  dc = sum ds   one matmul, where autodiff would add up T small ones

The rows of a large batch go in two halves, and the positions are the first axis inside, as for the LSTM.
"""

import tensorflow as tf

from keras_seq.kernels import gru_unrolled, gru_xla, xla_loops
from keras_seq.kernels.batch_split import batch_halves, concat_batch, to_time_major

MAX_UNROLLED_STEPS = 256  # positions that are unrolled; beyond it the graph takes longer to build than the loop costs


def supports(x, h, recurrent_kernel, recurrent_bias=None, mask=None, recurrent_dropout_mask=None, activations=None):
    """Whether the twin takes these: reset after the matmul, tanh and sigmoid, no mask, no dropout of h, a T it can."""
    plain = mask is None and recurrent_dropout_mask is None and activations is None and recurrent_bias is not None
    return plain and bool(x.shape[1]) and (x.shape[1] <= MAX_UNROLLED_STEPS or xla_loops.xla_loop_is_faster(x, h))


def apply(x, h, recurrent_kernel, recurrent_bias=None, mask=None, recurrent_dropout_mask=None, activations=None):
    """The twin of `keras_seq.layers.gru.gru`; see there."""
    looped = xla_loops.xla_loop_is_faster(x, h)
    way, slices = gru_xla if looped else gru_unrolled, batch_halves(h, looped)

    @tf.custom_gradient
    def gru(x, h, recurrent_kernel, recurrent_bias):
        x = to_time_major(x)
        done = [way.positions(x[:, rows], h[rows], recurrent_kernel, recurrent_bias) for rows in slices]
        [y] = concat_batch([[y] for y, _ in done])

        def gradient(dy, dh):
            dy = to_time_major(dy)
            backs = zip(slices, (back for _, back in done), strict=True)
            dx, ds, dh = concat_batch([back(dy[:, rows], dh[rows]) for rows, back in backs])
            before = tf.cast(tf.concat([h[None], y[:-1]], axis=0), ds.dtype)
            return to_time_major(dx), dh, tf.tensordot(before, ds, [[0, 1], [0, 1]]), tf.reduce_sum(ds, axis=[0, 1])

        return (to_time_major(y), y[-1]), gradient

    return gru(x, h, tf.convert_to_tensor(recurrent_kernel), tf.convert_to_tensor(recurrent_bias))
