import keras
import numpy as np
import pytest

from keras_seq.interpretability import patching_effects
from keras_seq.interpretability.activations import BATCH_SIZE
from keras_seq.models import GPT2Config, LSTMConfig

pytestmark = pytest.mark.any_backend
V = 7
RANDOM = np.random.default_rng(2)


def softmax(logits):
    e = np.exp(np.asarray(logits, "float64") - np.max(logits))
    return e / e.sum()


def test_the_effect_is_the_share_of_the_divergence_that_a_patch_takes_away(randomize):
    model = randomize(LSTMConfig(embedding_dim=3, units=5).build_model(V))
    ids, source = RANDOM.integers(V, size=(2, BATCH_SIZE + 3))
    ids[:-6] = source[:-6]  # what differs is near the end
    effects = patching_effects(model, ids, source)

    def prediction(x):
        h = keras.ops.convert_to_numpy(model.blocks[0](x[None]))
        return softmax(keras.ops.convert_to_numpy(model.head(h))[0, -1])

    x, x_source = (keras.ops.convert_to_numpy(model.embedding(row)) for row in (ids, source))
    p, p_source = prediction(x), prediction(x_source)
    for t in (0, BATCH_SIZE - 1, BATCH_SIZE, len(ids) - 1):
        patched = x.copy()
        patched[t] = x_source[t]
        q = prediction(patched)
        expected = 1 - np.sum(p_source * np.log(p_source / q)) / np.sum(p_source * np.log(p_source / p))
        assert effects["embedding"][t] == pytest.approx(expected, abs=1e-3)
    assert effects["lstm_0"][-1] == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(effects["lstm_0"][:-1], 0, atol=1e-4)
    np.testing.assert_allclose(effects["embedding"][:-6], 0, atol=1e-4)  # the same ids


def test_at_the_last_layer_only_the_last_position_counts(randomize):
    config = GPT2Config(embedding_dim=4, num_layers=2, num_heads=2, feed_forward_dim=8, context_length=5)
    model = randomize(config.build_model(V))
    effects = patching_effects(model, *RANDOM.integers(V, size=(2, 5)))
    assert [*effects] == ["embedding", "positions", "block_0", "block_1", "normalization"]
    for name in ("block_1", "normalization"):
        np.testing.assert_allclose(effects[name], [0, 0, 0, 0, 1], atol=1e-4)
    assert np.abs(effects["block_0"][:-1]).max() > 1e-3


def test_mistakes_are_named():
    model = LSTMConfig(embedding_dim=3, units=5).build_model(V)
    with pytest.raises(ValueError, match="3 and 2 tokens; expected two of the same length"):
        patching_effects(model, [1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="predicts the same after both texts"):
        patching_effects(model, [1, 2, 3], [1, 2, 3])
