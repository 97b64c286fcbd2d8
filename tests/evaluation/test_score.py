import numpy as np
import pytest
from keras import ops

import keras_seq
from keras_seq.evaluation import Evaluator, TextScore, score_text
from keras_seq.evaluation.score import paired_difference
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from tests.tokenizers.test_text import with_bos

VOCABULARY = CharacterTokenizer("\n abcdefg")
TEXT = "a bad cab\nfaced a bee"
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=5),
    "transformer": TransformerConfig(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=6),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, randomize):
    return randomize(MODELS[request.param].build_model(VOCABULARY.vocabulary_size), seed=4, scale=1.0)


@pytest.mark.any_backend
def test_the_losses_of_all_characters_are_those_of_the_streaming_loss(model):
    scored = score_text(model, VOCABULARY, TEXT)
    streaming = Evaluator(model).streaming_loss(VOCABULARY.encode(TEXT))
    assert "".join(scored.tokens) == TEXT
    assert (len(scored.token_losses), scored.num_characters) == (len(TEXT), len(TEXT) - 1)
    assert np.isnan(scored.token_losses[0])
    assert np.nansum(scored.token_losses) == pytest.approx(streaming.total, rel=1e-6)
    assert scored.loss_per_character == pytest.approx(streaming.mean, rel=1e-6)
    assert scored.bits_per_character == pytest.approx(streaming.bits_per_token, rel=1e-6)


@pytest.mark.any_backend
def test_the_first_ones_are_those_of_one_pass(model):
    ids = VOCABULARY.encode(TEXT)
    log_p = ops.convert_to_numpy(ops.log_softmax(model(ids[None, :6])))[0]
    np.testing.assert_allclose(
        score_text(model, VOCABULARY, TEXT).token_losses[1:7], -log_p[range(6), ids[1:7]], rtol=1e-5
    )


def test_longer_tokens_count_their_characters():
    words = WordTokenizer.from_text(TEXT)
    model = LSTMConfig(embedding_dim=3, units=5).build_model(words.vocabulary_size)
    scored = score_text(model, words, TEXT)
    assert "".join(scored.tokens) == TEXT
    assert scored.num_characters == len(TEXT) - len("a")
    assert scored.loss_per_character == pytest.approx(scored.token_losses[1:].sum() / scored.num_characters)


FIRST_TOKENS = [  # tokenizer, text, characters that the first token takes
    (WordTokenizer.from_text("to be"), "x be", 1),
    (WordTokenizer.from_text("to be"), "extraordinary be", 13),
    (WordPieceTokenizer.from_text("to be"), "Q to be", 1),
    (BytePairTokenizer.from_text("to be"), "\u00e9tude", 1),
    (CharacterTokenizer.from_text("to be", oov_token="[UNK]"), "xbe", 1),
    (with_bos(), "to be", 0),
    (with_bos(), "\u00e9", 0),
]


@pytest.mark.parametrize(("tokenizer", "text", "first"), FIRST_TOKENS)
def test_characters_are_those_of_the_text_that_is_scored(tokenizer, text, first):
    model = LSTMConfig(embedding_dim=3, units=5).build_model(tokenizer.vocabulary_size)
    scored = score_text(model, tokenizer, text)
    ids = tokenizer.encode(text)
    log_p = ops.convert_to_numpy(ops.log_softmax(model(ids[None, :-1])))[0]
    bits = -log_p[range(len(ids) - 1), ids[1:]].sum() / np.log(2)
    assert scored.num_characters == len(text) - first
    assert scored.bits_per_character == pytest.approx(bits / (len(text) - first), rel=1e-5)
    assert "".join(scored.tokens) == text
    assert scored.piece(0)


def test_nothing_after_the_first_character_is_refused():
    tokenizer = BytePairTokenizer.from_text("to be")
    model = LSTMConfig(embedding_dim=3, units=5).build_model(tokenizer.vocabulary_size)
    with pytest.raises(ValueError, match="no character after its first token"):
        score_text(model, tokenizer, "\u00e9")


def test_a_notebook_shows_the_text_with_its_losses():
    scored = TextScore(("", "<b>", "d"), np.array([np.nan, 1, 0.5], "float32"), 4, ("<s>", "<b>", "d"))
    page = scored._repr_html_()
    assert "&lt;s&gt;<span" in page
    assert 'title="1.00 nats">&lt;b&gt;</span>' in page


def test_the_package_has_it(model):
    assert keras_seq.score is score_text
    assert keras_seq.generate(model, VOCABULARY, "ab", max_new_tokens=3, temperature=0).startswith("ab")
    with pytest.raises(AttributeError, match="frobnicate"):
        keras_seq.frobnicate  # noqa: B018


def test_the_highest_losses_come_with_their_place_and_the_text_around_them():
    scored = TextScore(tuple("ab\ncd e"), np.array([np.nan, 1, 3, 2, 7, 7, 0], "float32"), 6)
    first, second, third = scored.highest_losses(3)
    assert first == (4, 7.0, 2, 2, "ab⏎c", "d", "·e")
    assert (second.index, third.index, third.line, third.column) == (5, 2, 1, 3)
    assert (scored.highest_losses(0), len(scored.highest_losses())) == ([], 6)
    with pytest.raises(ValueError, match="count=-1"):
        scored.highest_losses(-1)


WINDOWS = 800


def window_losses(random, seeds, between_seeds, between_windows, shared, shift=0.0):
    """`[seeds, WINDOWS]`: what all models find hard, what a window is to this one, and how a seed happened to go."""
    of_seeds = random.normal(scale=between_seeds, size=(seeds, 1))
    return 1.5 + shift + shared + of_seeds + random.normal(scale=between_windows, size=(seeds, WINDOWS))


@pytest.fixture
def random():
    return np.random.default_rng(7)


def test_the_mean_is_the_mean_and_a_shift_moves_everything_by_itself(random):
    shared = random.normal(size=WINDOWS)
    first, second = window_losses(random, 3, 0.01, 0.1, shared), window_losses(random, 2, 0.01, 0.1, shared)
    difference, moved = paired_difference(first, second), paired_difference(first, second + 0.25)
    assert difference.mean == pytest.approx(second.mean() - first.mean())
    assert difference.low < difference.mean < difference.high
    for name in ("mean", "low", "high"):
        assert getattr(moved, name) == pytest.approx(getattr(difference, name) + 0.25)
    assert moved.significant


def test_the_same_losses_differ_by_nothing():
    same = np.random.default_rng(0).normal(size=(1, WINDOWS))
    difference = paired_difference(same, same)
    assert (difference.mean, difference.low, difference.high, difference.significant) == (0, 0, 0, False)


def test_the_windows_are_paired(random):
    """How hard a window is for both models is no doubt about their difference."""
    shared = random.normal(scale=10, size=WINDOWS)
    difference = paired_difference(
        window_losses(random, 1, 0, 0.1, shared), window_losses(random, 1, 0, 0.1, shared, shift=0.1)
    )
    assert difference.high - difference.low < 0.05
    assert difference.significant


@pytest.mark.parametrize(("seeds", "between_seeds"), [(1, 0.0), (8, 0.05)])
def test_the_interval_is_that_of_the_normal_distribution_where_that_is_known(seeds, between_seeds):
    """Independent windows and seeds: the width is that of 2 x 7 degrees of freedom, on average over many."""
    widths = []
    for n in range(30):
        random = np.random.default_rng(n)
        first, second = (window_losses(random, seeds, between_seeds, 0.3, 0.0) for _ in range(2))
        difference = paired_difference(first, second, seed=n)
        widths.append(difference.high - difference.low)
    variance = 2 * 0.3**2 / (seeds * WINDOWS) + 2 * between_seeds**2 / seeds
    quantile = 1.96 if seeds == 1 else 2.145
    assert np.mean(widths) == pytest.approx(2 * quantile * np.sqrt(variance), rel=0.12)


@pytest.mark.parametrize("seeds", [(1, 1), (2, 2), (3, 3), (2, 3), (5, 5), (3, 1)])
@pytest.mark.parametrize("windows", [40, 400])
def test_nineteen_of_twenty_intervals_hold_the_true_difference(seeds, windows, monkeypatch):
    monkeypatch.setattr("keras_seq.evaluation.score.NUM_SAMPLES", 400)
    held, count = 0, 400
    for n in range(count):
        random = np.random.default_rng(n)
        between = 0.0 if seeds == (1, 1) else 0.01
        first, second = (
            random.normal(scale=between, size=(k, 1)) + random.normal(scale=0.1, size=(k, windows)) for k in seeds
        )
        difference = paired_difference(first, second, seed=n)
        held += difference.low <= 0 <= difference.high
    assert (0.88 if seeds == (3, 1) else 0.92) < held / count < 0.995


def test_windows_that_go_together_make_it_wider(random):
    independent = random.normal(size=WINDOWS)
    together = np.repeat(random.normal(size=WINDOWS // 8), 8)  # of the same scale, eight neighbors alike
    zero = np.zeros((1, WINDOWS))
    widths = [f.high - f.low for f in (paired_difference(zero, x[None]) for x in (independent, together))]
    assert widths[1] > 2 * widths[0]


def test_it_is_a_function_of_its_seed(random):
    first, second = (window_losses(random, 2, 0.1, 0.1, 0.0) for _ in range(2))
    assert paired_difference(first, second) == paired_difference(first, second)
    assert paired_difference(first, second, seed=1) != paired_difference(first, second)


@pytest.mark.parametrize("shapes", [((2, 5), (2, 6)), ((5,), (5,)), ((0, 5), (1, 5)), ((1, 0), (1, 0))])
def test_losses_that_are_not_of_the_same_windows_are_refused(shapes):
    with pytest.raises(ValueError, match="the same windows in both"):
        paired_difference(*map(np.zeros, shapes))


def test_one_window_says_nothing_of_chance():
    difference = paired_difference(np.zeros((1, 1)), np.ones((1, 1)))
    assert (difference.low, difference.mean, difference.high) == (-np.inf, 1, np.inf)
    assert not difference.significant


def test_draws_are_the_same_in_groups(random, monkeypatch):
    first, second = (window_losses(random, 2, 0.1, 0.1, 0.0) for _ in range(2))
    whole = paired_difference(first, second)
    monkeypatch.setattr("keras_seq.evaluation.score.MAX_INDICES", 3 * 999)
    in_groups = paired_difference(first, second)
    assert (in_groups.low, in_groups.high) == pytest.approx((whole.low, whole.high), abs=1e-12)
