import keras
import pytest

from keras_seq.models.config import shapes_only


class Counted(keras.initializers.Zeros):
    """Counts how often values are drawn."""

    calls = 0

    def __call__(self, shape, dtype=None):
        Counted.calls += 1
        return super().__call__(shape, dtype)


@pytest.mark.parametrize("fails", [False, True])
def test_weights_that_are_only_counted_are_drawn_neither_then_nor_later(fails):
    try:
        with shapes_only():
            layer = keras.layers.Dense(3, kernel_initializer=Counted())
            layer.build((None, 2))
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    with keras.StatelessScope():
        pass
    assert layer.count_params() == 9
    assert Counted.calls == 0
