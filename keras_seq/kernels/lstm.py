"""`layers.lstm.lstm` on TensorFlow: its loop over the positions in two ways, and what is the same in both.

    da_t = what comes back to z_t + h_{t-1} U              `lstm_loops.py`, where it pays, else `lstm_unrolled.py`
    dU = [h_0 .. h_{T-1}]^T [da_1 .. da_T]                 one matmul, where autodiff would add up T small ones

Rows do not depend on each other: the two halves of a large batch are worked on side by side, each on its own core.
Inside, the positions are the first axis: all of one position lies together.
"""

import tensorflow as tf

from keras_seq.kernels import loops, lstm_loops, lstm_unrolled
from keras_seq.kernels.rows import joined, parts, turned

LONGEST = 256  # positions that are unrolled; beyond it the graph takes longer to build than the loop costs


def can_run(z, recurrent_kernel, h, c, mask=None, kept=None, activations=None):
    """Whether the twin takes these arguments: no mask, tanh and sigmoid, a known length, short or worth compiling."""
    if mask is not None or activations is not None or not z.shape[1]:
        return False
    return z.shape[1] <= LONGEST or loops.pay(z, c)


def run(z, recurrent_kernel, h, c, mask=None, kept=None, activations=None):
    """The twin of `keras_seq.layers.lstm.lstm`; see there."""
    looped = loops.pay(z, c)
    way, slices = lstm_loops if looped else lstm_unrolled, parts(c, looped)

    @tf.custom_gradient
    def lstm(z, recurrent_kernel, h, c):  # `kept` is drawn and not learned
        z = turned(z)
        done = [
            way.positions(z[:, rows], recurrent_kernel, h[rows], c[rows], None if kept is None else kept[rows])
            for rows in slices
        ]
        y, last, memory = joined([outputs for outputs, _ in done])

        def gradient(dy, dh, dc):
            dy = turned(dy)
            backs = zip(slices, (back for _, back in done), strict=True)
            da, dh, dc = joined([back(dy[:, rows], dh[rows], dc[rows]) for rows, back in backs])
            before = tf.concat([h[None], y[:-1]], axis=0)
            before = before if kept is None else before * kept
            return turned(da), tf.tensordot(before, da, [[0, 1], [0, 1]]), dh, dc

        return (turned(y), last, memory), gradient

    return lstm(z, tf.convert_to_tensor(recurrent_kernel), h, c)  # a variable read inside would need care of its own
