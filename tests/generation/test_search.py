import dataclasses
import itertools

import numpy as np
import pytest
from keras import ops

from keras_seq.generation import SamplingConfig, SamplingLoop, beam_search, contrastive_search, greedy
from keras_seq.models import LSTMConfig, Seq2SeqConfig, TransformerConfig
from keras_seq.ops.compiled import compiled

pytestmark = pytest.mark.any_backend
numpy = ops.convert_to_numpy
V, LENGTH, END, ROWS = 3, 4, 1, 5
FULL = V**LENGTH  # more hypotheses than there are sequences
TABLE = np.random.default_rng(3).normal(scale=2.0, size=(ROWS, (V + 1) ** (LENGTH + 1), V)).astype("float32")


def step(ids, state):
    """Logits that depend on the row and on every id so far: nothing but the right state gives the right ones."""
    row, so_far = numpy(state["row"])[:, 0], numpy(state["so far"][0])
    prefix = so_far * (V + 1) + ids[:, 0] + 1
    return TABLE[row, prefix], {"row": state["row"], "so far": (prefix,), "steps": state["steps"] + 1}


def initial_state(rows):
    rows = np.array(rows, "int32")
    return {"row": rows[:, None], "so far": (np.zeros_like(rows),), "steps": np.array(0)}  # the last for all rows


def log_p(row, first, ids):
    """The oracle: log p of a sequence, ids after its end left out."""
    prefix, total = first + 1, 0.0
    for number in ids:
        logits = TABLE[row, prefix].astype("float64")
        total += logits[number] - np.log(np.exp(logits).sum())
        prefix = prefix * (V + 1) + number + 1
    return total


def up_to_end(ids, end=END):
    ids, ends = [int(number) for number in ids], end if isinstance(end, tuple) else (end,)
    return tuple(ids[: next((n for n, number in enumerate(ids, 1) if number in ends), LENGTH)])


def every_sequence(end):
    return {up_to_end(ids, end) for ids in itertools.product(range(V), repeat=LENGTH)}


FIRST = np.array([0, 2, 1, 0, 2])


def search(num_beams=4, rows=range(ROWS), first=FIRST, end=END, **options):
    return beam_search(step, initial_state([*rows]), first, LENGTH, end, num_beams, **options)


def greedily(end=END):
    return greedy(step, initial_state(range(ROWS)), FIRST, LENGTH, end)


@pytest.mark.parametrize("end", [END, 0, None, (0, 2)])
def test_greedy_takes_the_likeliest_id_each_time(end):
    for row, (ids, score) in enumerate(zip(*greedily(end), strict=True)):
        ids, prefix = up_to_end(ids, end), FIRST[row] + 1
        for number in ids:
            assert number == TABLE[row, prefix].argmax()
            prefix = prefix * (V + 1) + number + 1
        assert len(ids) == LENGTH or ids[-1] in np.ravel(end)
        assert score == pytest.approx(log_p(row, FIRST[row], ids), abs=1e-5)


@pytest.mark.parametrize("length_penalty", [0.0, 2.0])
def test_a_beam_of_one_is_greedy(length_penalty):
    expected, log_ps = greedily()
    ids, scores = search(1, length_penalty=length_penalty)
    np.testing.assert_array_equal(ids[:, 0], expected)
    lengths = np.array([len(up_to_end(row)) for row in expected])
    assert len({*lengths}) > 1
    np.testing.assert_allclose(scores[:, 0], log_ps / ((5 + lengths) / 6) ** length_penalty, rtol=1e-5)


@pytest.mark.parametrize("end", [END, 0, None, (0, 2)])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 3.0])
def test_a_full_beam_orders_all_sequences_that_there_are(end, length_penalty):
    ids, scores = search(FULL, end=end, length_penalty=length_penalty)
    for row in range(ROWS):
        known = {s: log_p(row, FIRST[row], s) / ((5 + len(s)) / 6) ** length_penalty for s in every_sequence(end)}
        found = [up_to_end(sequence, end) for sequence in ids[row]]
        assert {*found[: len(known)]} == known.keys()
        np.testing.assert_allclose(scores[row, : len(known)], sorted(known.values(), reverse=True), rtol=1e-5)
        np.testing.assert_allclose(scores[row, : len(known)], [known[s] for s in found[: len(known)]], rtol=1e-5)
        assert (scores[row, len(known) :] == -np.inf).all()


def test_a_length_penalty_prefers_longer_ones():
    lengths = [np.mean([len(up_to_end(s)) for s in search(FULL, length_penalty=a)[0][:, 0]]) for a in (0.0, 3.0)]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize("num_beams", [2, 4, 7])
def test_every_hypothesis_is_one_with_its_own_score_and_none_is_there_twice(num_beams):
    ids, scores = search(num_beams)
    assert (np.diff(scores) <= 0).all()
    for row in range(ROWS):
        found = [up_to_end(s) for s in ids[row]]
        assert len({*found}) == num_beams
        np.testing.assert_allclose(scores[row], [log_p(row, FIRST[row], s) for s in found], rtol=1e-5)


def test_what_has_ended_is_never_extended_and_never_lost():
    """It may end at once with a probability of 0.15; two ways on have 0.4 each after two ids, and 0.025 after six."""

    def tempting(ids, state):
        logits = np.where(numpy(state)[:, None] == 0, np.log([0.8, 0.15, 0.05]), np.log([0.5, 1e-9, 0.5])[None])
        return logits, state + 1

    ids, scores = beam_search(tempting, np.zeros(1, "int32"), [0], 6, END, num_beams=2)
    assert ids[0, 0].tolist() == [END, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(scores, np.log([[0.15, 0.8 / 2**5]]), rtol=1e-5)


def test_rows_of_a_batch_do_not_see_each_other():
    ids, scores = search(4)
    for row in range(ROWS):
        alone = search(4, [row], FIRST[row : row + 1])
        np.testing.assert_array_equal(alone[0][0], ids[row])
        np.testing.assert_allclose(alone[1][0], scores[row], rtol=1e-6)


def test_it_stops_when_all_have_ended():
    calls = []

    def soon(ids, state):
        calls.append(len(ids))
        return np.tile([[0.0, 50.0, 0.0]], (len(ids), 1)), state

    for found in (greedy(soon, (), [0, 2], 9, END)[0], beam_search(soon, (), [0, 2], 9, END, num_beams=1)[0][:, 0]):
        assert found.tolist() == [[END, *[0] * 8]] * 2
    assert calls == [2, 2]


def test_half_precision_is_summed_in_float64():
    def half(ids, state):
        return ops.zeros((len(ids), 50), "bfloat16"), state

    for scores in (greedy(half, (), [0], 30)[1], beam_search(half, (), [0], 30, num_beams=2)[1]):
        np.testing.assert_allclose(scores, -30 * np.log(50), rtol=1e-12)


MODELS = {
    "lstm": LSTMConfig(embedding_dim=4, units=6),
    "transformer": TransformerConfig(8, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=24),
}
PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_is_searched_as_whole_passes_would(randomize, name):
    size, length, first = 4, 5, np.array([3, 1])
    model = randomize(MODELS[name].build_model(size), scale=1.0)
    step, state = compiled(model.step, model), model.get_initial_state(2)
    ids, scores = beam_search(step, state, first, length, num_beams=size**length)
    every = np.array([*itertools.product(range(size), repeat=length)])
    for row in range(2):
        read = np.concatenate([np.full((len(every), 1), first[row]), every[:, :-1]], axis=1)
        log_ps = numpy(ops.log_softmax(model(read)))
        totals = np.take_along_axis(log_ps, every[..., None], axis=-1)[..., 0].sum(axis=1)
        np.testing.assert_array_equal(ids[row, 0], every[totals.argmax()])
        np.testing.assert_allclose(scores[row], np.sort(totals)[::-1], atol=1e-4)


def test_an_encoder_decoder_keeps_source_and_cache_with_their_hypothesis(randomize):
    model = randomize(Seq2SeqConfig(8, 1, 1, 2, 12).build_model(6), scale=1.0)
    source = np.array([[3, 4, 0, 5], [1, 2, 3, 4], [5, 5, 0, 0]])
    state = model.get_initial_state(source, 4)
    ids, scores = beam_search(compiled(model.step, model), state, [1, 1, 1], 4, num_beams=3)
    for row in range(3):
        read = np.insert(ids[row, :, :-1], 0, 1, axis=1)
        sources = np.repeat(source[row : row + 1], 3, axis=0)
        log_ps = numpy(ops.log_softmax(model({"encoder_token_ids": sources, "decoder_token_ids": read})))
        totals = np.take_along_axis(log_ps, ids[row][..., None], axis=-1)[..., 0].sum(axis=1)
        np.testing.assert_allclose(scores[row], totals, atol=1e-4)


@pytest.fixture(scope="module", params=MODELS)
def model(request, randomize):
    return randomize(MODELS[request.param].build_model(7), seed=4, scale=1.0)


def by_whole_passes(model, ids, length, top_k, alpha):
    """The formula, in loops and float64, every candidate in a whole pass from the first id."""
    ids = list(ids)

    def hidden(texts):
        x = ops.convert_to_numpy(model.hidden_states(np.array(texts))[0]).astype("float64")
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    for _ in range(length):
        p = ops.convert_to_numpy(ops.softmax(model(np.array([ids]))[0, -1]))
        candidates = [int(candidate) for candidate in np.argsort(-p)[:top_k]]
        scores = {}
        for candidate, x in zip(candidates, hidden([[*ids, candidate] for candidate in candidates]), strict=True):
            similarity = max(x[-1] @ h for h in x[:-1])
            scores[candidate] = (1 - alpha) * p[candidate] - alpha * similarity
        ids.append(max(scores, key=scores.get))
    return ids[-length:]


@pytest.mark.parametrize(
    ("top_k", "alpha"), [(7, 0.9), *(pytest.param(*case, marks=pytest.mark.rare) for case in ((3, 0.6), (20, 0.3)))]
)
@pytest.mark.usefixtures("eagerly")  # texts of many lengths
def test_contrastive_search_is_the_formula(model, top_k, alpha):
    assert contrastive_search(model, PROMPT, 6, top_k, alpha) == by_whole_passes(model, PROMPT, 6, top_k, alpha)


@pytest.mark.usefixtures("eagerly")
def test_contrastive_search_without_alpha_or_with_one_candidate_is_greedy(model):
    expected = np.concatenate([*SamplingLoop(model)([PROMPT], 15, SamplingConfig(temperature=0))], axis=1)[0].tolist()
    assert contrastive_search(model, PROMPT, 15, top_k=4, alpha=0) == expected
    assert contrastive_search(model, PROMPT, 15, top_k=1, alpha=0.9) == expected
    ended = contrastive_search(model, PROMPT, 15, top_k=1, end_token_id=(expected[3], expected[5]))
    assert ended == expected[: min(expected.index(expected[3]), expected.index(expected[5])) + 1]


@pytest.mark.usefixtures("eagerly")
def test_contrastive_search_goes_no_further_than_the_context():
    model = dataclasses.replace(MODELS["transformer"], context_length=8).build_model(7)
    assert len(contrastive_search(model, PROMPT, 3)) == 3
    with pytest.raises(ValueError, match="context_length=8"):
        contrastive_search(model, PROMPT, 4)
