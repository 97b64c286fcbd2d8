import keras
import numpy as np
import pytest
from scipy.special import softmax

from keras_seq.interpretability import layer_outputs, logit_lens, patched_logits, patched_state_logits, patching_effects
from keras_seq.interpretability.activations import BATCH_SIZE
from keras_seq.interpretability.lenses import readout
from keras_seq.layers import LSTM
from keras_seq.models import GPT2Config, LanguageModel, LSTMConfig, TransformerConfig
from keras_seq.training.optimizers import rematerialize_blocks
from tests.models.test_language_model import SMALL

pytestmark = pytest.mark.any_backend
V, T = 7, 6
RANDOM, EFFECTS = np.random.default_rng(1), np.random.default_rng(2)
IDS, SOURCE = RANDOM.integers(V, size=(2, 2, T))
FEW = ("lstm", "gpt2")  # in the default suite
NAMES = [name if name in FEW else pytest.param(name, marks=pytest.mark.rare) for name in SMALL]


def numpy(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


@pytest.fixture(scope="module")
def small(randomize):
    built = {}

    def small(name, dtype=None):
        if (name, dtype) not in built:
            built[name, dtype] = randomize(SMALL[name].build_model(V, dtype=dtype))
        return built[name, dtype]

    return small


@pytest.mark.parametrize("name", NAMES)
def test_at_the_last_layer_the_lens_gives_the_logits(small, name):
    model = small(name)
    lens = logit_lens(model, IDS)
    np.testing.assert_allclose([*lens.values()][-1], numpy(model(IDS)), atol=1e-6, rtol=1e-5)
    assert all(logits.shape == (2, T, V) for logits in lens.values())
    assert len(lens) > 1 or len({x.shape for x in layer_outputs(model, IDS).values()}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_patching_a_layer_everywhere_gives_the_logits_of_the_other_text(small, name):
    """One layer is enough, whichever: all that follows depends on it alone."""
    model = small(name)
    source = numpy(model(SOURCE))
    assert np.abs(source - numpy(model(IDS))).max() > 0.01
    np.testing.assert_allclose(patched_logits(model, IDS, SOURCE), source, atol=2e-5)
    for layer in layer_outputs(model, IDS):
        np.testing.assert_allclose(patched_logits(model, IDS, SOURCE, [layer]), source, atol=2e-5, err_msg=layer)
    own = numpy(model(IDS))
    np.testing.assert_allclose(patched_logits(model, IDS, SOURCE, mask=np.zeros(T)), own, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_patching_some_positions_is_that_and_no_more(small, name):
    model, mask = small(name), np.arange(T) == 2
    x, source = model.embedding(IDS), model.embedding(SOURCE)
    layers = layer_outputs(model, IDS)
    for chosen in layers:
        x, source = model.embedding(IDS), model.embedding(SOURCE)
        for block in (None, *model.blocks):
            if block is not None:
                x, source = block(x, training=False), block(source, training=False)
            if (block or model.embedding).name == chosen:
                x = keras.ops.where(mask[None, :, None], source, x)
        patched = patched_logits(model, IDS, SOURCE, [chosen], mask)
        np.testing.assert_allclose(patched, numpy(model.logits(x)), atol=2e-5)
        np.testing.assert_allclose(patched[:, :2], numpy(model(IDS))[:, :2], atol=2e-5)  # the past stays


@pytest.mark.parametrize("name", NAMES)
def test_a_replaced_state_is_another_past(small, name):
    model = small(name)
    prefix, source, ids = IDS[:, :3], SOURCE[:, :3], IDS[:, 3:]
    expected = numpy(model(np.concatenate([source, ids], axis=1)))[:, 3:]
    np.testing.assert_allclose(patched_state_logits(model, prefix, source, ids), expected, atol=2e-5)
    same = numpy(model(IDS))[:, 3:]
    np.testing.assert_allclose(patched_state_logits(model, prefix, source, ids, []), same, atol=2e-5)


def test_one_layer_remembers_another_text_than_the_other(randomize):
    first, second = (LSTM(3, return_sequences=True, name=name) for name in ("first", "second"))
    model = randomize(LanguageModel(keras.layers.Embedding(V, 3), [first, second], keras.layers.Dense(V)))
    prefix, source, ids = IDS[:, :3], SOURCE[:, :3], IDS[:, 3:]
    embedded = model.embedding(source)
    states = [layer.get_initial_state(2) for layer in (first, second)]
    _, states[0] = first(embedded, state=states[0], return_state=True)
    _, states[1] = second(first(model.embedding(prefix)), state=states[1], return_state=True)
    expected = numpy(model(ids, state=tuple(states)))
    np.testing.assert_allclose(patched_state_logits(model, prefix, source, ids, ["first"]), expected, atol=1e-6)


def test_bfloat16_is_patched_without_rounding(small):
    model = small("gpt2", "mixed_bfloat16")
    np.testing.assert_array_equal(patched_logits(model, IDS, SOURCE), numpy(model(SOURCE)))
    np.testing.assert_array_equal([*logit_lens(model, IDS).values()][-1], numpy(model(IDS)))


def test_any_keras_model_can_be_read_and_patched(randomize):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, 4, name="table")(ids)
    y = keras.layers.Dense(4, activation="tanh", name="hidden")(x)
    model = randomize(keras.Model(ids, keras.layers.Dense(V, name="logits")(keras.layers.Add(name="sum")([x, y]))))
    outputs = layer_outputs(model, IDS, ["hidden", "sum"])
    embedded = numpy(model.get_layer("table")(IDS))
    np.testing.assert_allclose(outputs["sum"], embedded + outputs["hidden"], atol=1e-6)
    np.testing.assert_allclose(patched_logits(model, IDS, SOURCE, ["sum"]), numpy(model(SOURCE)), atol=1e-6)
    only_hidden = embedded + layer_outputs(model, SOURCE, ["hidden"])["hidden"]
    expected = numpy(model.get_layer("logits")(only_hidden))
    np.testing.assert_allclose(patched_logits(model, IDS, SOURCE, ["hidden"]), expected, atol=1e-6)
    lens = logit_lens(model, IDS, ["hidden", "sum"])
    np.testing.assert_allclose(lens["hidden"], numpy(model.get_layer("logits")(outputs["hidden"])), atol=1e-6)
    np.testing.assert_allclose(lens["sum"], numpy(model(IDS)), atol=1e-6)


def test_a_model_is_as_before_also_after_an_error(small):
    model = small("gpt2")
    before = numpy(model(IDS))
    patched_logits(model, IDS, SOURCE)
    with pytest.raises(ValueError, match="ids"):
        patched_logits(model, IDS + V, SOURCE)
    assert not any("call" in vars(layer) for layer in (model.embedding, *model.blocks))
    np.testing.assert_array_equal(numpy(model(IDS)), before)


def test_a_rematerialized_block_stays_so(randomize):
    model = randomize(TransformerConfig(8, 2, 2, 12, context_length=8).build_model(V))
    rematerialize_blocks(model)
    before = [vars(block).get("call") for block in model.blocks]
    assert any(before)
    layer_outputs(model, IDS)
    assert [vars(block).get("call") for block in model.blocks] == before


def test_normalization_and_projection_belong_to_the_readout(small):
    assert [block.name for block in readout(small("gpt2"))] == ["normalization"]
    assert [block.name for block in readout(small("lstm"))] == ["dropout_1"]
    assert "normalization" not in logit_lens(small("gpt2"), IDS)


def test_the_effect_is_the_share_of_the_divergence_that_a_patch_takes_away(randomize):
    model = randomize(LSTMConfig(embedding_dim=3, units=5).build_model(V))
    ids, source = EFFECTS.integers(V, size=(2, BATCH_SIZE + 3))
    ids[:-6] = source[:-6]  # what differs is near the end
    effects = patching_effects(model, ids, source)

    def prediction(x):
        h = keras.ops.convert_to_numpy(model.blocks[0](x[None]))
        return softmax(np.asarray(keras.ops.convert_to_numpy(model.head(h))[0, -1], "float64"))

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
    effects = patching_effects(model, *EFFECTS.integers(V, size=(2, 5)))
    assert [*effects] == ["embedding", "positions", "block_0", "block_1", "normalization"]
    for name in ("block_1", "normalization"):
        np.testing.assert_allclose(effects[name], [0, 0, 0, 0, 1], atol=1e-4)
    assert np.abs(effects["block_0"][:-1]).max() > 1e-3


def test_mistakes_are_named(small):
    model = small("gpt2")
    keras_model = keras.Sequential([keras.layers.Embedding(V, 2), keras.layers.Dense(V)], name="plain")
    for call, message in (
        (lambda: layer_outputs(model, IDS, ["block_7"]), "gpt2 has no layer 'block_7'; expected one of embedding"),
        (lambda: layer_outputs(model, IDS, "block_0"), "layers='block_0'; expected a list of names"),
        (lambda: logit_lens(model, IDS, []), "layers is empty"),
        (lambda: layer_outputs(keras_model, IDS), "layers=None; expected names of layers of plain"),
        (lambda: logit_lens(keras_model, IDS), "layers=None"),
        (lambda: logit_lens(small("mamba"), IDS, ["embedding", "head"]), r"'head'; expected a width of 7"),
        (lambda: patched_logits(model, IDS, SOURCE[:, :3]), r"shape \(2, 3\); expected that of ids, \(2, 6\)"),
        (lambda: patched_state_logits(model, IDS, SOURCE, IDS, ["normalization"]), "layers='normalization'"),
        (lambda: patched_state_logits(model, IDS, SOURCE[:, :3], IDS, ["block_0"]), r"shape \(2, 3\)"),
        (lambda: patching_effects(model, [1, 2, 3], [1, 2]), "3 and 2 tokens"),
        (lambda: patching_effects(model, [1, 2, 3], [1, 2, 3]), "the same after both texts"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    "mask",
    [np.ones(T + 1, bool), np.ones((3, 1, T), bool), np.arange(T), np.full(T, np.nan), "all"],
    ids=["length", "rank", "positions", "nan", "text"],
)
def test_a_mask_that_does_not_fit_is_named(small, mask):
    with pytest.raises(ValueError, match=r"(?s)mask: .*; expected booleans of a shape that broadcasts to that of ids"):
        patched_logits(small("lstm"), IDS, SOURCE, mask=mask)
