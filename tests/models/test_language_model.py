import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.layers.introspection import iter_layers
from keras_seq.models import LANGUAGE_MODELS, MODELS, LanguageModel
from keras_seq.models.config import tiny_config
from keras_seq.training.muon import muon_blocks
from tests.conftest import often

CONTEXT, VOCABULARY = 7, 11
SIZES = {"embedding_dim": 8, "units": 7, "num_layers": 2, "feed_forward_dim": 12, "kernel_size": 3, "state_dim": 3}
RATES = {"dropout": 0.3, "recurrent_dropout": 0.3}
SMALL = {
    name: tiny_config(name, **SIZES, **RATES, num_key_value_heads=1, rank=3, gate_rank=3, context_length=CONTEXT)
    for name in LANGUAGE_MODELS
}
every_model = pytest.mark.parametrize("name", LANGUAGE_MODELS)
# where a law takes long, models of unlike parts speak for the others, which are left to `make test-all`
UNLIKE = ("lstm", "mamba", "gated_deltanet", "hybrid")  # the hybrid has attention, too
unlike_models = often("name", LANGUAGE_MODELS, UNLIKE)
two_models = often("name", LANGUAGE_MODELS, ("lstm", "hybrid"))  # where the law is the model's more than its layers'


@pytest.fixture(scope="module")
def make(randomize):
    @functools.cache  # no test changes the weights
    def make(name, dtype=None):
        return randomize(SMALL[name].build_model(VOCABULARY, dtype=dtype))

    return make


def some_ids(batch=2, length=CONTEXT, seed=0):
    return np.random.default_rng(seed).integers(VOCABULARY, size=(batch, length)).astype("int32")


def numpy(x):
    return ops.convert_to_numpy(x).astype("float64")


def check_stepping(model, tolerance):
    ids = some_ids(length=5)
    state, steps = model.get_initial_state(len(ids)), []
    for t in range(ids.shape[1]):
        logits, state = model.step(ids[:, t : t + 1], state)
        assert logits.shape == (2, VOCABULARY)
        steps.append(numpy(logits))
    whole = numpy(model(ids))
    np.testing.assert_allclose(np.stack(steps, 1), whole, atol=tolerance * np.abs(whole).max())


@often("name", LANGUAGE_MODELS, (*UNLIKE, "minlstm", "transformer"))
def test_stepping_equals_the_whole_pass(make, name):
    check_stepping(make(name), tolerance=1e-5)


@two_models
def test_stepping_in_half_precision_equals_the_whole_pass(make, name):
    check_stepping(make(name, "mixed_bfloat16"), tolerance=5e-2)


@unlike_models
def test_pieces_with_the_state_handed_on_equal_the_whole(make, name):
    model, ids = make(name), some_ids()
    state, parts = None, []  # without a state it is the zero state
    for start, stop in ((0, 4), (4, 5), (5, CONTEXT)):
        logits, state = model(ids[:, start:stop], state=state, return_state=True)
        parts.append(numpy(logits))
    np.testing.assert_allclose(np.concatenate(parts, 1), numpy(model(ids)), atol=1e-5)


@often("name", LANGUAGE_MODELS, (*UNLIKE, "minlstm", "transformer"))
def test_the_future_cannot_leak(make, name):
    check_causality(make(name), training=False)


@two_models
def test_the_future_cannot_leak_in_training(make, name):
    check_causality(make(name), training=True)


def check_causality(model, training):
    ids = some_ids()
    seeds = [v for v in model.variables if "seed" in v.path]
    assert seeds
    start = [ops.convert_to_numpy(seed) for seed in seeds]

    def logits(ids):
        for seed, value in zip(seeds, start, strict=True):
            seed.assign(value)  # the same dropout in both calls
        return numpy(model(ids, training=training))

    changed = ids.copy()
    changed[:, 5] = (changed[:, 5] + 1) % VOCABULARY
    before, after = logits(ids), logits(changed)
    np.testing.assert_array_equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(axis=-1).all()


@two_models
def test_dropout_is_on_in_training_only(make, name, dropout_acts_in_training_only):
    model = make(name)
    dropout_acts_in_training_only(lambda training: numpy(model(some_ids(), training=training)))


@often("name", LANGUAGE_MODELS, ("lstm", "mamba", "hybrid"))
def test_a_model_from_disk_gives_the_same_logits(make, name, tmp_path):
    model, ids = make(name), some_ids()
    model.save(tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(revived(ids)), numpy(model(ids)))
    assert revived.context_length == model.context_length
    logits, _ = revived.step(ids[:, :1], revived.get_initial_state(2))
    np.testing.assert_allclose(numpy(logits), numpy(model(ids))[:, 0], atol=1e-5)


@two_models
def test_a_model_from_its_config_has_the_same_config_and_logits(make, name):
    model, ids = make(name, "mixed_bfloat16"), some_ids()
    revived = LanguageModel.from_config(model.get_config())
    revived.build((None, None))
    assert revived.get_config() == model.get_config()
    revived.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(revived(ids)), numpy(model(ids)))
    # a saved file has these names, and its digest, that of a run, must not count what the process made before
    names = [[layer.name for layer in iter_layers(one, attributes=True)] for one in (model, revived)]
    assert names[0] == names[1]


@two_models
@pytest.mark.parametrize("policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.rare)])
def test_logits_are_float32_in_half_precision(make, name, policy):
    model = make(name, policy)
    assert model.embedding.compute_dtype == policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(model(some_ids()).dtype) == "float32"
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


@unlike_models
def test_a_model_with_a_state_of_one_size_has_no_longest_text(make, name):
    if hasattr(SMALL[name], "context_length"):
        pytest.skip("it has one")
    model = make(name)
    assert model.context_length is None
    assert model(some_ids(length=150)).shape == (2, 150, VOCABULARY)


SEERS = {
    "bidirectional": lambda: layers.Bidirectional(layers.LSTM(2, return_sequences=True), name="seer"),
    "inside": lambda: layers.PreNormResidual(
        [layers.Bidirectional(layers.LSTM(2, return_sequences=True))], name="seer"
    ),
    "keras": lambda: keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True), name="seer"),
    "attention": lambda: layers.TransformerBlock(num_heads=2, feed_forward_dim=8, name="seer"),
}


@pytest.mark.parametrize("seer", SEERS)
def test_what_sees_later_positions_is_refused_with_the_reason(seer):
    embedding, head = keras.layers.Embedding(VOCABULARY, 4), keras.layers.Dense(VOCABULARY)
    with pytest.raises(ValueError, match=r"seer cannot be a block of a language model: .* sees the id .*tagging"):
        LanguageModel(embedding, [layers.LSTM(4, return_sequences=True), SEERS[seer]()], head)


@pytest.mark.parametrize(
    "block",
    [
        lambda: keras.layers.LSTM(4, return_sequences=True, name="keeper"),
        lambda: layers.Stateful(layers.LSTM(4, return_sequences=True), 2, name="keeper"),
        lambda: keras.layers.TimeDistributed(keras.layers.LSTM(4), name="keeper"),
        lambda: keras.layers.Conv1D(4, 3, padding="causal", name="keeper"),
        lambda: keras.layers.MaxPooling1D(2, 1, padding="same", name="keeper"),
        lambda: keras.layers.MultiHeadAttention(2, 4, name="keeper"),
    ],
)
def test_what_cannot_be_stepped_is_refused(block):
    embedding, head = keras.layers.Embedding(VOCABULARY, 4), keras.layers.Dense(VOCABULARY)
    with pytest.raises(ValueError, match="keeper cannot be a block of a language model: its call takes and returns"):
        LanguageModel(embedding, [block()], head)


@pytest.mark.parametrize(
    "block",
    [
        lambda: keras.layers.GlobalMaxPooling1D(name="pool"),
        lambda: keras.layers.Lambda(lambda x: x[:, -1], name="pool"),
        lambda: keras.layers.Cropping1D(1, name="pool"),
    ],
)
def test_a_block_that_gives_no_sequence_is_refused_when_it_is_built(block):
    model = LanguageModel(keras.layers.Embedding(VOCABULARY, 4), [block()], keras.layers.Dense(VOCABULARY))
    with pytest.raises(ValueError, match=r"pool makes .*; expected \[B, T, D\]"):
        model(np.zeros((2, 5), "int32"))


def test_blocks_are_layers_and_the_head_gives_logits():
    embedding, head = keras.layers.Embedding(VOCABULARY, 4), keras.layers.Dense(VOCABULARY, activation="softmax")
    with pytest.raises(ValueError, match="blocks holds 'lstm'; expected layers"):
        LanguageModel(embedding, ["lstm"], keras.layers.Dense(VOCABULARY))
    with pytest.raises(ValueError, match="gives probabilities; expected a head that gives logits"):
        LanguageModel(embedding, [], head)
    LanguageModel(embedding, [keras.layers.Conv1D(4, 1)], keras.layers.Dense(VOCABULARY))  # a Dense layer


def test_a_layer_cannot_stand_there_twice():
    embedding, head, block = (
        keras.layers.Embedding(VOCABULARY, 4),
        keras.layers.Dense(VOCABULARY),
        layers.LSTM(4, return_sequences=True),
    )
    with pytest.raises(ValueError, match="the same layer twice"):
        LanguageModel(embedding, [block, block], head)
    with pytest.raises(ValueError, match="the same layer twice"):
        layers.PreNormResidual([block, block])


@unlike_models
def test_no_bias_is_a_matrix_to_muon(make, name):
    taken = {v.path for v in make(name).trainable_variables if muon_blocks(v)}
    assert taken
    assert not [path for path in taken if path.endswith("bias") or "convolution" in path or path.endswith("log_a")]


@pytest.mark.slow
def test_the_models_have_one_size_at_their_defaults():
    sizes = {}
    for name in LANGUAGE_MODELS:
        fields = {field.name for field in dataclasses.fields(MODELS[name])}
        sizes[name] = (
            MODELS[name](**({"context_length": 64} if "context_length" in fields else {}))
            .build_model(65)
            .count_params()
        )
    assert max(sizes.values()) <= 1.05 * min(sizes.values()), sizes
    for name, size in sizes.items():
        (said,) = re.findall(r"([\d.]+) million parameters", MODELS[name].__doc__)
        assert abs(size - 1e6 * float(said)) < 10_000, (name, size)


@often("name", LANGUAGE_MODELS, ("lstm", "transformer"))
def test_tied_embeddings_are_one_matrix_both_ways(randomize, name, tmp_path):
    if "tie_embeddings" not in MODELS[name].__dataclass_fields__:
        pytest.skip("the model has no such option")
    free = dataclasses.replace(SMALL[name], tie_embeddings=False).build_model(VOCABULARY)
    model = randomize(dataclasses.replace(SMALL[name], tie_embeddings=True).build_model(VOCABULARY))
    assert model.head is None
    assert [w.path for w in free.weights if "head" in w.path]
    tables = [w for w in model.weights if w.path.endswith("embedding/embeddings")]  # GPT-2 has positions' too
    ids, (table,) = some_ids(), map(ops.convert_to_numpy, tables)
    assert table.shape == (VOCABULARY, SMALL[name].embedding_dim)
    x = model.embedding(ids)
    for block in model.blocks:
        x = block(x)
    np.testing.assert_allclose(numpy(model(ids)), numpy(x) @ table.T, atol=1e-5)
    model.save(tmp_path / "tied.keras")
    np.testing.assert_array_equal(numpy(keras.models.load_model(tmp_path / "tied.keras")(ids)), numpy(model(ids)))


def test_class_weights_of_tokens_are_refused():
    """Keras would take targets [B, T] for one-hot rows."""
    model = SMALL["lstm"].build_model(7)
    model.compile("sgd", TokenCrossEntropy())
    ids = np.ones((2, 3), "int32")
    for train in (model.fit, model.train_on_batch):
        with pytest.raises(ValueError, match=r"class_weight=.*sample_weight \[B, T\]"):
            train(ids, ids, class_weight={1: 2.0})
