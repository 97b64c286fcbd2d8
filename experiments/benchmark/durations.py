"""Read from the lines of metrics.jsonl how long a run trained: until a loss was reached, and in each of its parts."""

import itertools
import statistics
from collections.abc import Iterable, Sequence


def seconds_to_loss(points: Iterable[tuple[float, float]], loss: float) -> float | None:
    """Return when a loss was first reached, interpolated linearly between the validations before and after.

    A curve of losses is convex, so this is a little too late.

    Args:
        points: `(seconds, loss)` of each validation, in order.
        loss: The loss to reach.

    Returns:
        Seconds; those of the first validation if it is as low; None if none is.

    >>> seconds_to_loss([(10.0, 2.0), (20.0, 1.0)], 1.25)
    17.5
    """
    earlier = None
    for point in points:
        if point[1] <= loss:
            if earlier is None:
                return point[0]
            return earlier[0] + (earlier[1] - loss) / (earlier[1] - point[1]) * (point[0] - earlier[0])
        earlier = point
    return None


def seconds_by_part(
    lines: Sequence[dict], first_time: float, whole: float, other_seconds: dict[str, float]
) -> dict[str, float]:
    """Return the seconds of the start-up, the steps, the other parts of a training, and the rest.

    The steps of the first line are counted at the median pace of all: what they took longer is compilation, and belongs
    to the start-up, as does all that was before them.

    Args:
        lines: The lines of training of metrics.jsonl, at least two.
        first_time: When the first of them was written, in seconds since the start of the process.
        whole: When the process ended.
        other_seconds: Those of result.json.

    Returns:
        `startup`, `steps`, the `other_seconds`, and `rest`, which add up to `whole`.
    """
    pairs = itertools.pairwise(lines)
    pace = statistics.median((b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in pairs)
    first_steps = pace * lines[0]["step"]
    steps = first_steps + lines[-1]["seconds"] - lines[0]["seconds"]
    parts = {"startup": first_time - first_steps, "steps": steps, **other_seconds}
    return {**parts, "rest": whole - sum(parts.values())}
