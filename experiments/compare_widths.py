"""Models of other widths, to come close to a number of parameters: `--match parameters`.

    recurrent     units
    Mamba         embedding_dim
    minGRU, ...   embedding_dim, and units and feed_forward_dim in proportion
    Transformers  heads of the same width, so embedding_dim in steps of it, and feed_forward_dim in proportion;
                  then feed_forward_dim by itself, for these steps are coarse

The number of parameters grows with each of these widths, so an interval around it can be narrowed.
"""

import dataclasses
import math

import keras


def matched(definition, vocabulary_size, target):
    """The definition at the width that comes closest to `target` parameters.

    Args:
        definition: the dataclass of a language model.
        vocabulary_size: V.
        target: the number of parameters to come close to.
    """

    def closest(make, start):
        return _closest(make, lambda made: _count(made, vocabulary_size), target, start)

    if not hasattr(definition, "num_heads"):
        recurrent = hasattr(definition, "units") and not hasattr(definition, "feed_forward_dim")
        width = "units" if recurrent else "embedding_dim"
        return closest(lambda n: scaled(definition, width, n), getattr(definition, width))
    definition = closest(lambda n: with_heads(definition, n), definition.num_heads)
    return closest(lambda n: dataclasses.replace(definition, feed_forward_dim=n), definition.feed_forward_dim)


def scaled(definition, name, value):
    """The definition with one width set, and those that go with the width of the stream in proportion."""
    with_it = ("units", "feed_forward_dim") if name == "embedding_dim" else ()
    ratio = value / getattr(definition, name)
    others = {n: max(1, round(getattr(definition, n) * ratio)) for n in with_it if hasattr(definition, n)}
    return dataclasses.replace(definition, **{name: value}, **others)


def with_heads(definition, num_heads):
    """A Transformer with so many heads of the width that they have; those of keys and values in proportion."""
    changed = scaled(definition, "embedding_dim", definition.embedding_dim // definition.num_heads * num_heads)
    if hasattr(definition, "num_key_value_heads"):
        most = num_heads * definition.num_key_value_heads / definition.num_heads
        groups = max(n for n in range(1, num_heads + 1) if num_heads % n == 0 and n <= max(1, most))
        return dataclasses.replace(changed, num_heads=num_heads, num_key_value_heads=groups)
    return dataclasses.replace(changed, num_heads=num_heads)


def _count(definition, vocabulary_size):
    keras.backend.clear_session()
    return definition.build_model(vocabulary_size).count_params()


def _closest(make, count, target, start):
    """make(n) for the n >= 1 whose count is closest to the target; `start` is where to look first.

    An interval around the target is cut where it would be if the count grew with the square of n, as it nearly does.
    """
    counts = {0: 0, start: count(make(start))}
    high = start
    while counts[high] < target:
        high *= 2
        counts[high] = count(make(high))
    low = max(n for n in counts if counts[n] < target)
    while high - low > 1:
        share = (math.sqrt(target) - math.sqrt(counts[low])) / (math.sqrt(counts[high]) - math.sqrt(counts[low]))
        middle = min(max(round(low + share * (high - low)), low + 1), high - 1)
        counts[middle] = count(make(middle))
        low, high = (middle, high) if counts[middle] < target else (low, middle)
    return make(min((n for n in (low, high) if n), key=lambda n: abs(counts[n] - target)))
