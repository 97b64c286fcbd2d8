"""Draw what may follow a series: draw the next value, read it as if it had been measured, and so on: free running."""

from collections.abc import Callable

import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.generation.search import gather_rows
from keras_seq.models.forecaster import Forecaster
from keras_seq.ops.compiled import compiled

MAX_ROWS = 4096  # paths at a time


def sample_paths(
    model: Forecaster, sample: Callable, values, horizon: int, num_paths: int = 100, seed: int = 0
) -> np.ndarray:
    """Draw paths of the values after each series.

    Args:
        model: A forecaster of one variable, C = 1.
        sample: Function from outputs `[N, num_outputs]` and a NumPy generator to values `[N, H]`, such as
            `StudentTLoss().sample`; the first of the H values is the next one.
        values: Series `[B, T, 1]`; a model with a `context_length` has room for T + horizon - 1 positions.
        horizon: Number of values to draw, one after the other.
        num_paths: Paths of each series.
        seed: Integer of at least 0.

    Returns:
        Float32 `[B, num_paths, horizon]`.

    Raises:
        ValueError: A number is out of its range, or there is no room.
    """
    checks.positive_integer("horizon", horizon)
    checks.positive_integer("num_paths", num_paths)
    values = np.asarray(values, "float32")
    positions, limit = values.shape[1] + horizon - 1, model.context_length
    if limit is not None and positions > limit:
        raise ValueError(
            f"horizon={horizon} after {values.shape[1]} values needs {positions} positions; expected at most "
            f"context_length={limit}: give fewer values, or build the model with a longer context."
        )
    step, random = compiled(model.step, model), np.random.default_rng(seed)
    size, parts = max(1, MAX_ROWS // num_paths), []
    for first in range(0, len(values), size):
        part = values[first : first + size]
        outputs, state = step(part, model.get_initial_state(len(part)))  # all positions of the series at once
        rows = np.repeat(np.arange(len(part)), num_paths)  # each path has a state of its own
        outputs, state = ops.take(outputs, rows, axis=0), gather_rows(state, rows)
        paths = np.empty((len(rows), horizon), "float32")
        for t in range(horizon):
            if t:
                outputs, state = step(paths[:, t - 1 : t, None], state)
            paths[:, t] = sample(outputs, random)[:, 0]
        parts.append(paths.reshape(len(part), num_paths, horizon))
    return np.concatenate(parts)
