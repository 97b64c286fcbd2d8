"""Allocate an int32 buffer shared by NumPy and TensorFlow, to avoid a second copy of a large corpus.

`tf.constant(array)` copies, and so does `tf.concat`; DLPack (https://dmlc.github.io/dlpack) shares the memory.
"""

import numpy as np
import tensorflow as tf

CHUNK_IDS = 1 << 20  # ids processed at a time, which bounds the temporary memory
ALIGNMENT = 64  # bytes, as TensorFlow's kernels expect


def shared_int32_buffer(length: int) -> tuple[np.ndarray, tf.Tensor]:
    """Allocate an uninitialized int32 array and tensor `[length]` that share their memory.

    >>> array, tensor = shared_int32_buffer(3)
    >>> array[:] = 7
    >>> tensor.numpy().tolist()
    [7, 7, 7]
    """
    if not length:
        return np.empty(0, np.int32), tf.zeros(0, tf.int32)
    padded = np.empty(length + ALIGNMENT // 4, np.int32)
    first = -padded.ctypes.data % ALIGNMENT // 4
    array = padded[first : first + length]
    return array, tf.experimental.dlpack.from_dlpack(array.__dlpack__())
