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
BLOCK = 1024  # numbers of a row that are drawn at a time
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


def uniform_draws(seed: int, row: int, count: int, start: int = 0) -> np.ndarray:
    """Draw the numbers of one row.

    Args:
        seed: Integer from 0 to 2^63 - 1.
        row: Number of the row, likewise.
        count: Numbers to draw; fewer are the first of more.
        start: Position of the first one.

    Returns:
        float32 `[count]`, in [0, 1).
    """
    words = [seed % 2**32, seed >> 32, row % 2**32, row >> 32]
    mixed = philox(np.array(words, "uint64")[:, None], SEED_KEY)
    first = start // 4
    counter = np.zeros((4, -(-(start + count) // 4) - first), "uint64")
    counter[0], counter[2:] = first + np.arange(counter.shape[1]), mixed[2:]
    words = philox(counter, mixed[:2, 0]).T.reshape(-1)[start - 4 * first :][:count]
    return (words % 2**23 / 2**23).astype("float32")


class RowDraws:
    """Draw the numbers of the rows of a batch by blocks, as they are needed.

    Args:
        seed: As for `uniform_draws`.
        first_row: Number of the first row.
        starts: Column at which each row's numbers begin, `[B]`.
        end: Column at which they end.
    """

    def __init__(self, seed: int, first_row: int, starts: np.ndarray, end: int):
        self.seed, self.first_row, self.starts, self.end = seed, first_row, starts.tolist(), end
        self.block, self.first_column = np.zeros((len(starts), 0), "float32"), 0

    def __call__(self, column: int, count: int) -> np.ndarray:
        """Return the numbers of some columns.

        Args:
            column: The first one, at least that of the call before.
            count: Columns, at most `BLOCK`.

        Returns:
            float32 `[B, count]`, in [0, 1); zeros before a row's numbers begin.
        """
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
