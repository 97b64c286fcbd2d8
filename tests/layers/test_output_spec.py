import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_seq import layers

LAYERS = {
    "LSTM": lambda **k: layers.LSTM(4, **k),
    "GRU": lambda **k: layers.GRU(4, return_sequences=True, **k),
    "SelectiveStateSpace": lambda **k: layers.SelectiveStateSpace(2, **k),
    "MultiHeadSelfAttention": lambda **k: layers.MultiHeadSelfAttention(2, **k),
    "TransformerBlock": lambda **k: layers.TransformerBlock(2, 8, **k),
    "Bidirectional": lambda **k: layers.Bidirectional(layers.LSTM(4, **k), **k),
}
each = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def spec_of(y):
    return tree.map_structure(lambda part: (tuple(part.shape), keras.backend.standardize_dtype(part.dtype)), y)


@each
@pytest.mark.parametrize("length", [3, None])
def test_a_plain_sequence_and_its_mask_need_no_trace(make, length, monkeypatch):
    layer = make(dtype="mixed_bfloat16")
    layer.build((2, 3, 6))
    expected = spec_of(layer(np.zeros((2, 3, 6), "float32"), mask=ops.ones((2, 3), "bool")))
    monkeypatch.setattr(layer, "call", None)
    x, mask = keras.KerasTensor((2, length, 6)), keras.KerasTensor((2, length), dtype="bool")
    for y in (layer(x), layer(x, mask=mask, training=True)):
        shape, dtype = spec_of(y)
        assert (tuple(size if size != length else 3 for size in shape), dtype) == expected


def test_what_else_is_returned_has_the_shapes_and_dtypes_of_the_call():
    x, symbolic = np.zeros((2, 3, 6), "float32"), keras.KerasTensor((2, 3, 6))
    for make in (LAYERS["LSTM"], LAYERS["GRU"]):
        layer = make(dtype="mixed_bfloat16")
        assert spec_of(layer(symbolic, return_state=True)) == spec_of(layer(x, return_state=True))
    for layer in (
        layers.LSTM(4, return_state=True, dtype="mixed_bfloat16"),
        layers.Bidirectional(layers.LSTM(4, return_state=True)),
        layers.Bidirectional(layers.LSTM(4), merge_mode=None),
        layers.Bidirectional(layers.LSTM(4, dtype="mixed_bfloat16")),  # not in the dtype of the wrapper
    ):
        assert spec_of(tuple(tree.flatten(layer(symbolic)))) == spec_of(tuple(tree.flatten(layer(x))))
    attends = layers.MultiHeadSelfAttention(2)
    assert spec_of(attends(symbolic, return_attention_scores=True)) == spec_of(attends(x, return_attention_scores=True))


@each
def test_what_the_call_refuses_is_refused_before_any_number_is_there(make):
    layer, x = make(), keras.KerasTensor((2, 3, 6))
    with pytest.raises(ValueError, match="mask has shape"):
        layer(x, mask=keras.KerasTensor((2, 4), dtype="bool"))
    with pytest.raises(ValueError, match="expected booleans"):
        layer(x, mask=keras.KerasTensor((2, 3), dtype="float32"))
    with pytest.raises(ValueError, match="complex64; expected real numbers"):
        make(autocast=False)(keras.KerasTensor((2, 3, 6), dtype="complex64"))
