"""Base class of position objects, which rotate queries and keys, or bias the scores, or both.

Both depend on positions only through their distance. Subclass it for other rotations or biases.
"""

import dataclasses

import keras


class RelativePositions:
    """Base class of position objects; itself it changes nothing.

    Subclasses are frozen dataclasses, so that equal arguments give equal objects, and are registered with
    `keras.saving.register_keras_serializable`.
    """

    def validate_key_dim(self, key_dim: int) -> None:
        """Raise a `ValueError` if heads of width `key_dim` are not supported."""

    def rotate(self, x, positions):
        """Rotate queries or keys.

        Args:
            x: `[B, T, H, K]`.
            positions: Positions of x, `[T]` or `[B, T]`.

        Returns:
            A tensor of the shape of x.
        """
        return x

    def bias(self, query_positions, key_positions, num_heads: int):
        """Compute the biases of the scores.

        Args:
            query_positions: `[T]` or `[B, T]`.
            key_positions: `[S]` or `[B, S]`.
            num_heads: H.

        Returns:
            A tensor that broadcasts to `[B, H, T, S]`, or None.
        """
        return None

    def get_config(self):
        """Return the fields of the dataclass."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        """Create an object from its fields."""
        return cls(**config)


def deserialize_positions(positions):
    """Return a position object from itself or from its serialized form, a dict, and None for None."""
    if isinstance(positions, dict):
        positions = keras.saving.deserialize_keras_object(positions)
    if positions is not None and not isinstance(positions, RelativePositions):
        raise ValueError(f"positions={positions!r}; expected None, RotaryPositions(), AlibiPositions() or their kind.")
    return positions
