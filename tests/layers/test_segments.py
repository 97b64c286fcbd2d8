"""SegmentEmbedding, and the laws of test_contract.py for it: there a layer takes no ids beside x."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import SegmentEmbedding

BACKEND = keras.backend.backend()
D = 6
SEGMENTS = np.array([[0, 0, 1, 2, 2], [2, 1, 1, 0, 0]])
numpy = ops.convert_to_numpy


def inputs(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 5, D)).astype("float32")


def make(**options):
    return SegmentEmbedding(3, embeddings_initializer="he_normal", **options)


def model_of(layer):
    """A functional model from ids and segments, weights all random, batch and length unknown."""
    ids, segments = (keras.Input((None,), dtype="int32", name=name) for name in ("ids", "segments"))
    x = keras.layers.Embedding(9, D, mask_zero=True, name="embedding")(ids)
    model = keras.Model([ids, segments], keras.layers.Dense(3)(layer(x, segments)))
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
    return model


IDS = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2]])


def test_it_adds_the_row_of_the_segment():
    layer, x = make(), inputs()
    y = numpy(layer(x, SEGMENTS))
    np.testing.assert_allclose(y, x + numpy(layer.embeddings)[SEGMENTS], atol=1e-6)
    np.testing.assert_array_equal(numpy(layer(x, SEGMENTS.astype("int32"))), y)
    assert layer.embeddings.shape == (3, D)


def test_a_config_revives_the_same_values():
    layer = make(name="given", dtype="mixed_bfloat16")
    for revived in (
        SegmentEmbedding.from_config(layer.get_config()),
        keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer)),
    ):
        assert revived.get_config() == layer.get_config()
        assert (revived.num_segments, revived.dtype_policy) == (3, layer.dtype_policy)
        assert isinstance(revived.embeddings_initializer, keras.initializers.HeNormal)


def test_a_saved_model_and_a_clone_give_the_same(tmp_path):
    model = model_of(make())
    model.save(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (keras.saving.load_model(tmp_path / "model.keras"), clone):
        np.testing.assert_array_equal(numpy(other([IDS, SEGMENTS])), numpy(model([IDS, SEGMENTS])))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_symbolic_shape_and_dtype_are_the_eager_ones(dtype):
    layer = make(dtype=dtype)
    eager = layer(inputs(), SEGMENTS)
    for shape in ((2, 5), (None, None)):
        y = layer(keras.KerasTensor((*shape, D)), keras.KerasTensor(shape, dtype="int32"))
        assert tuple(y.shape) == (*shape, D)
        assert keras.backend.standardize_dtype(y.dtype) == keras.backend.standardize_dtype(eager.dtype)
    assert keras.backend.standardize_dtype(eager.dtype) == layer.compute_dtype


class Given(keras.layers.Layer):
    """Shows the mask that Keras hands it."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, x, mask=None):
        return ops.cast(mask, "int32")


def test_the_mask_of_x_goes_on():
    embedding, layer = keras.layers.Embedding(9, D, mask_zero=True), make()
    np.testing.assert_array_equal(numpy(Given()(layer(embedding(IDS), SEGMENTS))), IDS != 0)
    ids, segments = (keras.Input((None,), dtype="int32") for _ in range(2))
    model = keras.Model([ids, segments], Given()(layer(embedding(ids), segments)))
    np.testing.assert_array_equal(numpy(model([IDS, SEGMENTS])), IDS != 0)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_precisions(policy):
    if policy == "float64" and BACKEND == "jax":
        pytest.skip("JAX knows float64 only on request")
    reference, layer, x = make(), make(dtype=policy), inputs()
    expected = numpy(reference(x, SEGMENTS))
    layer(x, SEGMENTS)
    layer.set_weights(reference.get_weights())
    y = layer(x, SEGMENTS)
    assert keras.backend.standardize_dtype(y.dtype) == layer.compute_dtype
    assert keras.backend.standardize_dtype(layer.embeddings.dtype) == layer.variable_dtype
    error = np.abs(numpy(ops.cast(y, "float32")) - expected)
    assert error.mean() < (0.03 if policy.startswith("mixed") else 1e-6)


def test_a_training_step_moves_the_segments_that_are_there():
    layer = make()
    model = model_of(layer)
    before = numpy(layer.embeddings)
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    there = np.minimum(SEGMENTS, 1)
    assert np.isfinite(model.train_on_batch([IDS, there], np.ones((2, 5, 3), "float32")))
    moved = (numpy(layer.embeddings) != before).all(axis=1)
    np.testing.assert_array_equal(moved, [True, True, False])


@pytest.mark.parametrize("bad", [3, -1])
def test_a_segment_out_of_range_is_an_error_or_nan_where_it_is_not_known(bad):
    layer, segments = make(), np.where(np.arange(5) == 2, bad, SEGMENTS)
    with pytest.raises(ValueError, match=rf"segment_ids holds {bad}; expected numbers from 0 to 2\."):
        layer(inputs(), segments)
    with pytest.raises(ValueError, match=f"segment_ids holds {bad}"):
        layer(inputs(), ops.convert_to_tensor(segments))
    if BACKEND == "torch":
        return  # torch.compile needs a C++ compiler and a minute
    model = model_of(layer)
    model.compile(jit_compile=True)
    y = model.predict_on_batch([IDS, segments])
    np.testing.assert_array_equal(np.isnan(y).all(axis=-1), [np.arange(5) == 2] * 2)
    assert np.isnan(y).any(axis=-1).sum() == 2


def test_wrong_arguments():
    with pytest.raises(ValueError, match="num_segments=0; expected an integer of at least 1"):
        SegmentEmbedding(0)
    with pytest.raises(ValueError, match=r"inputs has shape \(2, 6\); expected \[B, T, D\]"):
        make()(inputs()[:, 0], SEGMENTS[:, 0])
    layer = make()
    layer(inputs(), SEGMENTS)
    with pytest.raises(ValueError, match=r"expected \[B, T, 6\]"):
        layer(inputs()[..., :1], SEGMENTS)
