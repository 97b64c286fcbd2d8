import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.baselines import KneserNeyNGrams
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import LSTMConfig, TransformerConfig, assert_causal
from keras_seq.models.ngrams import NGramResidual, add_log_probabilities, held_out_log_probabilities, ngram_model
from keras_seq.saving import load_untrusted_model, save_model
from keras_seq.tokenizers import CharacterTokenizer

V = 6
TEXT = np.random.default_rng(0).choice(V - 1, size=400, p=[0.4, 0.3, 0.2, 0.05, 0.05]).astype("int32")  # one is unseen
IDS = np.random.default_rng(1).integers(V, size=(3, 8)).astype("int32")
pytestmark = pytest.mark.any_backend


def count(ids):
    return KneserNeyNGrams(ids, 3, V, (1, 1, 2))


@pytest.fixture(scope="module")
def ngrams():
    return ngram_model(count(TEXT))


@pytest.fixture(scope="module")
def residual(ngrams, randomize):
    return NGramResidual([ngrams, randomize(LSTMConfig(embedding_dim=3, units=4).build_model(V + 1))])


def log_p(counts, rows):
    return np.log([counts.distributions(row)[1:] for row in rows])


@pytest.mark.parametrize(("order", "min_counts"), [(1, None), (2, None), (3, (1, 2, 2)), (6, None)])
def test_its_logits_are_the_log_probabilities_of_the_counts(order, min_counts):
    counts = KneserNeyNGrams(TEXT, order, V, min_counts)
    model = ngram_model(counts)
    np.testing.assert_allclose(ops.convert_to_numpy(model(IDS)), log_p(counts, IDS), atol=2e-6)
    assert model.count_params() == 2 * len(counts.codes) + 2 * len(counts.backoff) + 1
    assert not model.trainable_variables


def test_a_vocabulary_of_any_size_and_a_text_of_one_id():
    for size, text in ((1, [0]), (2, [1, 1, 1]), (300, [299, 0, 128, 299, 0, 127])):
        counts = KneserNeyNGrams(text, 3, size)
        expected = log_p(counts, [text])
        np.testing.assert_allclose(ops.convert_to_numpy(ngram_model(counts)(np.array([text]))), expected, atol=2e-6)


@pytest.mark.parametrize("which", ["ngrams", "residual"])
def test_steps_and_parts_are_the_whole_and_the_future_cannot_leak(which, request):
    model = request.getfixturevalue(which)
    state, steps = model.get_initial_state(3), []
    for t in range(IDS.shape[1]):
        logits, state = model.step(IDS[:, t : t + 1], state)
        steps.append(ops.convert_to_numpy(logits))
    whole = ops.convert_to_numpy(model(IDS))
    np.testing.assert_allclose(np.stack(steps, 1), whole, atol=1e-5)
    first, state = model(IDS[:, :2], return_state=True)
    second, _ = model(IDS[:, 2:], state=state, return_state=True)
    np.testing.assert_allclose(np.concatenate([*map(ops.convert_to_numpy, (first, second))], axis=1), whole, atol=1e-5)
    other = IDS.copy()
    other[:, 6:] = (other[:, 6:] + 1) % V
    logits = ops.convert_to_numpy(model(other))
    np.testing.assert_array_equal(logits[:, :6], whole[:, :6])
    assert (logits[:, 6] != whole[:, 6]).any()
    assert_causal(model)


def test_a_mask_is_a_shorter_sequence(ngrams):
    mask = np.random.default_rng(2).random(IDS.shape) < 0.6
    mask[0], mask[:, -1] = False, True
    logits = ops.convert_to_numpy(ngrams(IDS, mask=mask))
    first, state = ngrams(IDS[:, :5], mask=mask[:, :5], return_state=True)
    rest, _ = ngrams(IDS[:, 5:], state=state, mask=mask[:, 5:], return_state=True)
    joined = np.concatenate([*map(ops.convert_to_numpy, (first, rest))], axis=1)
    for row, of_row, in_parts, valid in zip(IDS, logits, joined, mask, strict=True):
        (expected,) = log_p(count(TEXT), [row[valid]])
        np.testing.assert_allclose(of_row[valid], expected, atol=2e-6)
        np.testing.assert_allclose(in_parts[valid], expected, atol=2e-6)


def test_what_is_held_out_was_not_counted():
    found = held_out_log_probabilities(TEXT, count, folds=4)
    assert (found.shape, found.dtype) == ((len(TEXT), V), "float16")
    np.testing.assert_array_equal(*(held_out_log_probabilities(ids, count) for ids in ([0, 1], np.array([0, 1]))))
    edges = np.linspace(0, len(TEXT), 5).astype(int)
    for t in (0, 1, 57, 99, 100, 101, 250, 299, 300, 399):
        fold = np.searchsorted(edges, t, side="right") - 1
        others = np.concatenate([TEXT[: edges[fold] + 1], TEXT[edges[fold + 1] + 1 :]])
        expected = np.log(count(others).distribution(TEXT[: t + 1]))
        np.testing.assert_allclose(found[t], expected, atol=4e-3)
    once = np.concatenate([TEXT[:200], [V - 1], TEXT[200:]])  # an id that comes once is a surprise there
    assert held_out_log_probabilities(once, count, folds=4)[199, V - 1] < np.log(0.02)


def test_it_is_the_formula(ngrams, residual):
    logits = ops.convert_to_numpy(residual.members[1](IDS)).astype("float64")
    expected = logits[..., :V] + (1 + logits[..., V:]) * log_p(count(TEXT), IDS)
    np.testing.assert_allclose(ops.convert_to_numpy(residual(IDS)), expected, atol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_training_on_held_out_counts_learns_what_they_do_not_know():
    period = np.tile([0, 1, 2, 0, 1, 3, 0, 1, 4], 60)  # what follows 0 1 depends on 3 ids before
    pairs = KneserNeyNGrams(period, 2, V)
    lstm = LSTMConfig(embedding_dim=4, units=8).build_model(V + 1)
    known = held_out_log_probabilities(period, lambda ids: KneserNeyNGrams(ids, 2, V), folds=3)
    x = np.stack([np.arange(n, n + 24) for n in range(0, 480, 12)])
    given = keras.Input((24, V), dtype="float16")
    ids = keras.Input((24,), dtype="int32")
    model = keras.Model([ids, given], add_log_probabilities(given, lstm(ids)))
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit([period[x], known[x]], period[x + 1], epochs=12, verbose=0)
    together, alone = NGramResidual([ngram_model(pairs), lstm]), ngram_model(pairs)
    losses = [Evaluator(each).chunked_token_losses(period, 24).mean() for each in (together, alone)]
    assert losses[0] < 0.5 * losses[1]


@pytest.mark.usefixtures("eagerly")
def test_it_comes_back_from_disk_and_writes_text(residual, tmp_path):
    save_model(residual, tmp_path / "model.keras")
    revived = load_untrusted_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(revived(IDS)), ops.convert_to_numpy(residual(IDS)))
    tokenizer = CharacterTokenizer.from_text("abcdef")
    assert TextGenerator(revived, tokenizer)("ab", 3, seed=3) == TextGenerator(residual, tokenizer)("ab", 3, seed=3)


def test_in_half_precision_ids_and_counts_stay_exact():
    counts = KneserNeyNGrams(np.arange(299, -1, -1), 2, 300)  # bfloat16 has no 299
    for policy in ("bfloat16", "mixed_float16"):
        model = ngram_model(counts, dtype=policy)
        assert int(np.argmax(ops.convert_to_numpy(model(np.array([[299]])))[0, 0])) == 298


def test_what_does_not_fit_is_refused():
    ngrams = ngram_model(KneserNeyNGrams(TEXT, 1, V))
    for members in (
        [ngrams],
        [ngrams, LSTMConfig(embedding_dim=3, units=4).build_model(V)],
        [LSTMConfig(embedding_dim=3, units=4).build_model(V + 1), ngrams],
    ):
        with pytest.raises(ValueError, match="outputs; expected two members, with V and V"):
            NGramResidual(members)
    with pytest.raises(ValueError, match="6"):
        ngrams(np.full((1, 2), V))
    with pytest.raises(ValueError, match="ngrams='counts'; expected"):
        ngram_model("counts")
    with pytest.raises(ValueError, match="folds=1; expected"):
        held_out_log_probabilities(TEXT, count, folds=1)
    limited = NGramResidual([ngrams, TransformerConfig(4, 1, 1, 4, context_length=5).build_model(V + 1)])
    assert limited.context_length == 5
