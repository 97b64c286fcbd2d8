"""Draw random numbers as a function of (seed, step): Philox, a counter-based generator.

    bits(n) = Philox4x64-10(key = (seed, crc32(name)), counter = (1 ... n / 4, 0, 0, step))        n words of 64 bits
    uniform = (bits >> 11) 2^-53        integers below k = floor(k uniform)        permutation = argsort(bits)

Salmon et al. (2011, "Parallel Random Numbers: As Easy as 1, 2, 3"). The step is a part of the counter, so any step is
drawn without the ones before it. The name of what is drawn is a part of the key, so two draws of one step with the same
seed are independent. NumPy guarantees the bits for all its versions, unlike those of `Generator.integers` and
`Generator.permutation`, and they do not depend on Keras's backend.
"""

import functools
import math
import zlib

import numpy as np


def uniform(shape: tuple[int, ...], seed: int, step: int, name: str) -> np.ndarray:
    """Draw numbers with uniform distribution over [0, 1).

    Args:
        shape: Shape of the result.
        seed: Integer from 0 to 2**63 - 1.
        step: Number of the step or epoch, in the same range.
        name: What is drawn, such as "starts".

    Returns:
        float64 `shape`.

    >>> uniform((2,), seed=0, step=7, name="starts").round(3).tolist()
    [0.976, 0.703]
    """
    return (_bits(math.prod(shape), seed, step, name) >> 11).reshape(shape) * 2.0**-53


def integers(shape: tuple[int, ...], limit: int, seed: int, step: int, name: str) -> np.ndarray:
    """Draw integers with uniform distribution over 0 ... `limit` - 1, int64 `shape`; arguments as for `uniform`."""
    return (uniform(shape, seed, step, name) * limit).astype("int64")


@functools.lru_cache(maxsize=4)  # all steps of an epoch use one order
def permutation(size: int, seed: int, epoch: int, name: str) -> np.ndarray:
    """Draw an order of 0 ... `size` - 1, int64 `[size]`, read-only; arguments as for `uniform`."""
    order = np.argsort(_bits(size, seed, epoch, name), kind="stable")
    order.flags.writeable = False
    return order


def _bits(count, seed, step, name):
    return np.random.Philox(key=[seed, zlib.crc32(name.encode())], counter=[0, 0, 0, step]).random_raw(count)
