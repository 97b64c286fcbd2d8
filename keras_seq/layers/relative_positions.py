"""What attention asks of a position object: rotate the queries and keys, or bias the scores, or both.

Both depend on positions only by their distance. An object of one's own, with other rotations or biases, is a subclass.
"""

import dataclasses

import keras


class RelativePositions:
    """Does neither. Subclasses are frozen dataclasses, so equal settings are equal objects."""

    def validate_key_dim(self, key_dim):
        """Raises `ValueError` where heads of width `key_dim` cannot be positioned this way."""

    def rotate(self, x, positions):
        """Queries or keys `[B, T, H, K]` that stand at `positions` (`[T]` or `[B, T]`), rotated."""
        return x

    def bias(self, query_positions, key_positions, num_heads):
        """What is added to the scores, broadcastable to `[B, H, T, S]`, or None."""
        return None

    def get_config(self):
        """The settings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        """An object with these settings."""
        return cls(**config)


def deserialize_positions(positions):
    """A position object, from itself or from its serialised form; None stays None."""
    if isinstance(positions, dict):
        positions = keras.saving.deserialize_keras_object(positions)
    if positions is not None and not isinstance(positions, RelativePositions):
        raise ValueError(f"positions={positions!r}; expected None, RotaryPositions(), AlibiPositions() or their kind.")
    return positions
