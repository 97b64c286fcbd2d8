import itertools
import math

import numpy as np
import pytest
from keras import ops

from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.streaming import num_parts, streaming_losses
from keras_seq.models import LSTMConfig, MambaConfig
from tests.evaluation.test_evaluator import VOCABULARY, some_ids

pytestmark = [pytest.mark.any_backend, pytest.mark.usefixtures("eagerly")]


def counted(step):
    """The step, and a list that grows by the shape of x with each call."""
    calls = []

    def run(x, y, state):
        calls.append(x.shape)
        return step(x, y, state)

    return run, calls


class Counter:
    """logits[v] = 0.1 times how often v was seen so far: the state never forgets."""

    @staticmethod
    def get_initial_state(rows):
        return (ops.zeros((rows, VOCABULARY)),)

    @staticmethod
    def step(x, y, state):
        seen = ops.cumsum(ops.one_hot(x, VOCABULARY), axis=1) + state[0][:, None]
        return token_losses(0.1 * seen, y), (seen[:, -1],)


def losses_of_counter(ids):
    """In NumPy and float64, id by id."""
    seen, losses = np.zeros(VOCABULARY), []
    for before, after in itertools.pairwise(ids):
        seen[before] += 1
        losses.append(np.log(np.exp(0.1 * seen).sum()) - 0.1 * seen[after])
    return np.array(losses)


@pytest.mark.parametrize("count", [2, 3, 12, 13, 14, 25, 37, 48, 49, 50])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_state_that_never_forgets_is_read_from_start_to_end(count, parts):
    ids = some_ids(count, seed=count)
    step, calls = counted(Counter.step)
    found = streaming_losses(step, Counter.get_initial_state, ids, 3, parts)
    np.testing.assert_allclose(found, losses_of_counter(ids), rtol=1e-5)
    assert set(calls) <= {(parts, 3), (1, 3 * (parts - 2))}
    assert sum(map(math.prod, calls)) <= 3 * (count + 3 * parts)  # the guess, two readings, and the rest in one row


@pytest.mark.parametrize(
    ("config", "readings"),
    [(LSTMConfig(embedding_dim=3, units=4), {1}), (MambaConfig(embedding_dim=8, num_layers=1), {1, 2})],
)
def test_the_parts_of_a_model_that_forgets_are_read_once_or_twice(config, readings, randomize):
    model, ids = randomize(config.build_model(VOCABULARY)), some_ids(4 * 96 - 7)
    evaluator = Evaluator(model)
    whole = streaming_losses(evaluator._stateful_step, model.get_initial_state, ids, len(ids) - 1, 1)
    step, calls = counted(evaluator._stateful_step)
    np.testing.assert_allclose(streaming_losses(step, model.get_initial_state, ids, 48, 4), whole, atol=2e-5)
    assert len(calls) in {1 + 2 * n for n in readings}  # the guess, then 96 positions of each part


def test_a_state_that_is_not_a_number_ends_with_losses_that_are_not(randomize):
    def step(x, y, state):
        return token_losses(ops.zeros((*x.shape, VOCABULARY)), y) + state[0][:, :1], (state[0] + np.nan,)

    losses = streaming_losses(step, Counter.get_initial_state, some_ids(49), 3, 4)
    assert np.isfinite(losses[:3]).all()
    assert np.isnan(losses[3:]).all()


def test_the_evaluator_divides_a_long_text(randomize):
    model, ids = randomize(LSTMConfig(embedding_dim=3, units=4).build_model(VOCABULARY)), some_ids(33)
    evaluator = Evaluator(model)
    assert num_parts(model, len(ids), 2) == 8
    np.testing.assert_allclose(
        evaluator.streaming_token_losses(ids, chunk_length=2),
        evaluator.streaming_token_losses(ids, chunk_length=32),
        atol=2e-5,
    )


class StepsTaken(Counter):
    """A state that also counts positions, as caches do."""

    @staticmethod
    def get_initial_state(rows):
        return (ops.zeros((rows, VOCABULARY)), ops.zeros((rows,), "int32"))


def test_what_cannot_be_divided_is_read_in_one_part():
    config = LSTMConfig(embedding_dim=3, units=4)
    assert num_parts(config.build_model(VOCABULARY), 10_000, 256) == 16
    assert num_parts(config.build_model(VOCABULARY), 1_023, 256) == 1  # too short
    assert num_parts(config.build_model(VOCABULARY, dtype="mixed_bfloat16"), 10_000, 256) == 1
    assert num_parts(StepsTaken(), 10_000, 256) == 1
    assert num_parts(Counter(), 10_000, 256) == 1  # of unknown vocabulary size
