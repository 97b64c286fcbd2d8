"""Random numbers as functions of what they are for: Philox, a counter-based generator, in two widths.

    training      words of 64 bits = Philox4x64-10(key = (seed, crc32(name)), counter = (1 ... n / 4, 0, 0, step))
                  uniform = (word >> 11) 2^-53      integers below k = floor(k uniform)      order = argsort(words)
    generation    words 4 n ... 4 n + 3 of a row = Philox4x32-10(key = (m_0, m_1), counter = (n, 0, m_2, m_3))
                  (m_0, ..., m_3) = Philox4x32-10(SEED_KEY, counter = (seed, row))           uniform = 23 bits 2^-23

Salmon et al. (2011, "Parallel Random Numbers: As Easy as 1, 2, 3"). Any step, row or position is drawn without the ones
before it. The first is NumPy's, which guarantees the bits for all its versions, unlike those of `Generator.integers`;
the name of what is drawn is a part of the key, so two draws of one step are independent. The second is that of
`tf.random.stateless_uniform([count], [seed, row], alg="philox")`, with which an exported model samples.
"""

import functools
import math
import threading
import zlib
from collections.abc import Iterable

import numpy as np

MAX_STORED_SIZE = 1 << 22  # of a permutation: 32 MiB
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # of Philox4x32
KEY_INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
SEED_KEY = 0x3EC8F720, 0x02461E29
BLOCK = 1024  # numbers of a row that are drawn at a time
LOW, HIGH = np.uint64(2**32 - 1), np.uint64(32)


def uniform(shape: tuple[int, ...], seed: int, step: int, name: str) -> np.ndarray:
    """Draw numbers with uniform distribution over [0, 1).

    >>> uniform((2,), seed=0, step=7, name="starts").round(3).tolist()
    [0.976, 0.703]
    """
    return uniform_of_steps(shape, seed, (step,), name)[0]


def uniform_of_steps(shape: tuple[int, ...], seed: int, steps: Iterable[int], name: str) -> np.ndarray:
    """Draw what `uniform` draws, for several steps at once, float64 `[steps, *shape]`."""
    bits = _bits(math.prod(shape), seed, steps, name)
    return (bits >> 11).reshape(-1, *shape) * 2.0**-53


def integers(shape: tuple[int, ...], limit: int, seed: int, step: int, name: str) -> np.ndarray:
    """Draw integers with uniform distribution over 0 ... `limit` - 1, int64 `shape`; arguments as for `uniform`."""
    return integers_of_steps(shape, limit, seed, (step,), name)[0]


def integers_of_steps(shape: tuple[int, ...], limit: int, seed: int, steps: Iterable[int], name: str) -> np.ndarray:
    """Draw what `integers` draws, for several steps at once, int64 `[steps, *shape]`."""
    return (uniform_of_steps(shape, seed, steps, name) * limit).astype("int64")


def permuted(indices: np.ndarray, size: int, seed: int, epoch: int, name: str) -> np.ndarray:
    """Look up entries of a random order of 0 ... `size` - 1.

    A large order is not stored, since it would take memory and seconds. A Feistel network on pairs computes its entries
    one by one, again until the result is below the size (Black and Rogaway, 2002, "Ciphers with Arbitrary Finite
    Domains"):

        x = l b + r,   a b >= size:     l <- l + hash(r + key) mod a,   r <- r + hash(l + key) mod b,     three times
    """
    if size <= MAX_STORED_SIZE:
        return permutation(size, seed, epoch, name)[indices]
    keys = _bits(6, seed, (epoch,), name)[0]
    entries = np.array(indices, "uint64")
    outside = np.ones(entries.shape, bool)
    while outside.any():
        entries[outside] = _feistel(entries[outside], size, keys)
        outside = entries >= size
    return entries.astype("int64")


def _feistel(x, size, keys):
    """Permute the numbers below a b, little more than the size; each line can be undone, so no number is lost."""
    root = math.isqrt(size - 1) + 1
    a, b = np.uint64(root), np.uint64(-(-size // root))
    left, right = x // b, x % b
    for first_key, second_key in keys.reshape(-1, 2):
        left = (left + _hash(right + first_key) % a) % a
        right = (right + _hash(left + second_key) % b) % b
    return left * b + right


def _hash(x):
    """Mix 64 bits, as SplitMix64 does (Steele et al., 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


@functools.lru_cache(maxsize=2)  # all steps of an epoch use one order
def permutation(size: int, seed: int, epoch: int, name: str) -> np.ndarray:
    """Draw an order of 0 ... `size` - 1, int64 `[size]`, read-only; arguments as for `uniform`."""
    order = np.argsort(_bits(size, seed, (epoch,), name)[0], kind="stable")
    order.flags.writeable = False
    return order


_thread = threading.local()  # holds a generator: another key and counter take a tenth of the time of a new generator


def _bits(count, seed, steps, name):
    """Return random words, uint64 `[steps, count]`."""
    crc = zlib.crc32(name.encode())
    if not hasattr(_thread, "philox"):
        _thread.philox = np.random.Philox(0)
        _thread.state = _thread.philox.state | {"buffer": [0] * 4}
    philox, state, bits = _thread.philox, _thread.state, []
    for step in steps:
        state["state"] = {"key": (seed, crc), "counter": (0, 0, 0, step)}  # NumPy reads tuples sooner than arrays
        philox.state = state
        bits.append(philox.random_raw(count))
    return np.concatenate(bits).reshape(len(bits), count)


def philox(counter: np.ndarray, key) -> np.ndarray:
    """Apply the ten rounds of Philox4x32."""
    a, b, c, d = counter
    first, second = np.array(key, "uint64")
    for _ in range(10):
        low, high = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (high >> HIGH) ^ b ^ first, high & LOW, (low >> HIGH) ^ d ^ second, low & LOW
        first, second = (first + KEY_INCREMENTS[0]) & LOW, (second + KEY_INCREMENTS[1]) & LOW
    return np.stack([a, b, c, d])


def uniform_draws(seed: int, row: int, count: int, start: int = 0) -> np.ndarray:
    """Draw the numbers of one row."""
    words = [seed % 2**32, seed >> 32, row % 2**32, row >> 32]
    mixed = philox(np.array(words, "uint64")[:, None], SEED_KEY)
    first = start // 4
    counter = np.zeros((4, -(-(start + count) // 4) - first), "uint64")
    counter[0], counter[2:] = first + np.arange(counter.shape[1]), mixed[2:]
    words = philox(counter, mixed[:2, 0]).T.reshape(-1)[start - 4 * first :][:count]
    return (words % 2**23 / 2**23).astype("float32")


class RowDraws:
    """Draw the numbers of the rows of a batch by blocks, as they are needed."""

    def __init__(self, seed: int, first_row: int, starts: np.ndarray, end: int):
        self.seed, self.first_row, self.starts, self.end = seed, first_row, starts.tolist(), end
        self.block, self.first_column = np.zeros((len(starts), 0), "float32"), 0

    def __call__(self, column: int, count: int) -> np.ndarray:
        """Return the numbers of some columns."""
        if column + count > self.first_column + self.block.shape[1]:
            self.first_column = column
            self.block = np.zeros((len(self.starts), min(BLOCK, self.end - column)), "float32")
            for row, (numbers, start) in enumerate(zip(self.block, self.starts, strict=True)):
                before = min(max(0, start - column), len(numbers))
                position = column + before - start
                numbers[before:] = uniform_draws(
                    self.seed, self.first_row + row, len(numbers) - before, max(0, position)
                )
        first = column - self.first_column
        return self.block[:, first : first + count]
