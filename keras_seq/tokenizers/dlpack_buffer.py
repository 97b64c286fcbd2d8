"""One piece of memory that NumPy fills and TensorFlow reads, for ids that would not fit twice.

`tf.constant(array)` copies, and so does `tf.concat` of the parts; DLPack (https://dmlc.github.io/dlpack) hands over.
"""

import numpy as np
import tensorflow as tf

CHUNK_IDS = 1 << 20  # ids processed at a time, which bounds the temporary memory
ALIGNMENT = 64  # bytes, which TensorFlow's kernels count on


def shared_int32_buffer(length: int) -> tuple[np.ndarray, tf.Tensor]:
    """An array and a tensor `[length]` of int32 that are the same memory, of no value yet.

    >>> array, tensor = shared(3)
    >>> array[:] = 7
    >>> tensor.numpy().tolist()
    [7, 7, 7]
    """
    if not length:
        return np.empty(0, np.int32), tf.zeros(0, tf.int32)
    room = np.empty(length + ALIGNMENT // 4, np.int32)
    first = -room.ctypes.data % ALIGNMENT // 4
    array = room[first : first + length]
    return array, tf.experimental.dlpack.from_dlpack(array.__dlpack__())
