"""Draw uniform numbers that depend on (seed, row, position) only: Philox4x32-10 in NumPy, the same on every backend.

    words 4 n .. 4 n + 3  =  10 rounds of the counter (n, 0, m_2, m_3) under the key (m_0, m_1)
    (m_0, .., m_3)        =  10 rounds of the counter (seed, row), two words each, under SEED_KEY
    number                =  lowest 23 bits of its word / 2^23

Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3". The numbers are those of
`tf.random.stateless_uniform([count], [seed, row], alg="philox")`, with which an exported model samples.
"""

import numpy as np

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
SEED_KEY = 0x3EC8F720, 0x02461E29
LOW, HIGH = np.uint64(2**32 - 1), np.uint64(32)


def philox(counter: np.ndarray, key) -> np.ndarray:
    """Apply the ten rounds of Philox4x32.

    Args:
        counter: uint64 `[4, N]`, words of 32 bits.
        key: Two words of 32 bits.

    Returns:
        uint64 `[4, N]`, words of 32 bits.
    """
    a, b, c, d = counter
    first, second = np.array(key, "uint64")
    for _ in range(10):
        low, high = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = (high >> HIGH) ^ b ^ first, high & LOW, (low >> HIGH) ^ d ^ second, low & LOW
        first, second = (first + KEY_INCREMENTS[0]) & LOW, (second + KEY_INCREMENTS[1]) & LOW
    return np.stack([a, b, c, d])


def uniform_draws(seed: int, row: int, count: int) -> np.ndarray:
    """Draw the numbers of one row.

    Args:
        seed: Integer from 0 to 2^63 - 1.
        row: Number of the row, likewise.
        count: Numbers to draw; fewer are the first of more.

    Returns:
        float32 `[count]`, in [0, 1).
    """
    words = [seed % 2**32, seed >> 32, row % 2**32, row >> 32]
    mixed = philox(np.array(words, "uint64")[:, None], SEED_KEY)
    counter = np.zeros((4, -(-count // 4)), "uint64")
    counter[0], counter[2:] = np.arange(counter.shape[1]), mixed[2:]
    words = philox(counter, mixed[:2, 0]).T.reshape(-1)[:count]
    return (words % 2**23 / 2**23).astype("float32")
