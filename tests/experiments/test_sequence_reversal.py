import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments import sequence_reversal as study
from keras_seq.commands.options import replaced
from keras_seq.data.synthetic import Reversal
from keras_seq.interpretability import attention_weights
from keras_seq.models import LSTMConfig, TransformerConfig, assert_causal
from keras_seq.training import read_metrics
from tests.experiments.discovery import main_of

TASK = Reversal(alphabet_size=6, min_length=1, max_length=5, batch_size=40, seed=2)
SETTINGS = study.SequenceReversalConfig(alphabet_size=6, max_length=5, batch_size=40, seed=2, validation_sequences=30)


def scores_of(logits, x, y):
    return study.means(study.batch_sums(logits, x, y, TASK))


def sure(ids):
    """Logits that leave no doubt about an id."""
    return 50 * tf.one_hot(ids, TASK.vocabulary_size)


def test_scores_over_all_lengths_are_those_of_the_lengths_together(smoke):
    for row in smoke.rows:
        assert [(part["group"], part["trained"]) for part in row["groups"]] == [(n, n <= 3) for n in range(1, 7)]
        assert row["first_half_loss"] == pytest.approx(math.log(4), rel=0.02)
        trained = row["groups"][:3]  # as many sequences at each length, length + 1 ids after the separator of each
        assert row["sequence_accuracy"] == pytest.approx(np.mean([part["sequence_accuracy"] for part in trained]))
        accuracies = [part["second_half_accuracy"] for part in trained]
        assert row["second_half_accuracy"] == pytest.approx(np.average(accuracies, weights=[2, 3, 4]))


def test_the_smallest_training_learns(smoke):
    for row in smoke.rows:
        first, last = read_metrics(smoke.folder / row["run"], "validation")
        assert last["val_loss"] < first["val_loss"] < math.log(7)
        assert last["second_half_accuracy"] > 0.4  # one in four letters, and the end, which is one id in three
        assert "6 letters, a length not trained on:" in smoke.report


def test_tensorboard_gets_the_attention_of_a_model_that_has_some(smoke):
    for row in smoke.rows:
        events = EventAccumulator(str(smoke.folder / row["run"]), {"tensors": 0, "images": 0}).Reload()
        tags = {tag: len(events.Tensors(tag)) for tag in events.Tags()["tensors"]}
        images = [count for tag, count in tags.items() if tag.startswith(("attention/", "diagnostics/attention"))]
        assert set(images) == ({2} if row["model"] == "transformer" else set())


@pytest.mark.slow
def test_a_transformer_without_its_mask_fails(tmp_path, capsys):
    main = main_of("sequence_reversal")
    arguments = ["--smoke", "--broken-mask", "--log-dir", str(tmp_path)]
    for again in (False, True):  # also when it is resumed
        (*_, folder) = (None, *tmp_path.glob("*/*"))
        with pytest.raises(SystemExit) as stop:
            main(["--resume", str(folder)] if again else arguments)
        assert stop.value.code == 1
        assert "The non_causal is not causal, it sees future tokens: its first half loss" in capsys.readouterr().err
    (folder,) = tmp_path.glob("*/*")
    assert "it sees future tokens" in (folder / "sequence_reversal.md").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match="is not causal"):
        assert_causal(keras.models.load_model(folder / "non_causal-seed0/model.keras"))


def test_transformers_with_and_without_mask_differ_in_the_mask_only(randomize):
    settings = replaced(study.SequenceReversalConfig(), study.SMOKE)
    causal, non_causal = (
        study.build_model(settings, "transformer"),
        study.build_model(settings, "non_causal"),
    )
    non_causal.set_weights(randomize(causal).get_weights())
    assert_causal(causal, length=10)
    x, _ = settings.reversal.batch(0)
    differs = ~np.isclose(causal(x), non_causal(x), atol=1e-4).all(axis=(0, 2))
    np.testing.assert_array_equal(differs, [*[True] * (x.shape[1] - 1), False])  # the last position has no future
    future = ~np.tri(x.shape[1], dtype=bool)
    for model, is_causal in ((causal, True), (non_causal, False)):
        (weights,) = attention_weights(model, x[:1]).values()
        assert (weights[..., future] == 0).all() == is_causal


def test_a_perfect_prediction_is_not_causal():
    x, y = TASK.batch(0)
    perfect = scores_of(sure(y), x, y)
    assert (perfect["second_half_accuracy"], perfect["sequence_accuracy"]) == (1, 1)
    assert perfect["first_half_loss"] == pytest.approx(0, abs=1e-6)


def test_a_uniform_prediction_of_the_letters_has_a_loss_of_log_a():
    x, y = TASK.batch(0)
    for separator in (-30.0, 0.0, 30.0):
        logits = np.zeros((*y.shape, TASK.vocabulary_size), "float32")
        logits[..., TASK.separator] = separator
        assert scores_of(logits, x, y)["first_half_loss"] == pytest.approx(math.log(6), rel=1e-6)


def test_only_ids_after_the_separator_are_the_second_half():
    x, y = TASK.batch(0)
    targets, separators = y.copy(), (x == TASK.separator).argmax(1)
    for row, place in enumerate(separators):
        targets[row, :place] = (targets[row, :place] + 1) % 6  # wrong before it, the separator itself among them
    assert scores_of(sure(targets), x, y)["second_half_accuracy"] == 1
    targets[5, separators[5]] = (y[5, separators[5]] + 1) % 6
    one_wrong = scores_of(sure(targets), x, y)
    assert one_wrong["sequence_accuracy"] == pytest.approx(1 - 1 / 40)
    assert one_wrong["second_half_accuracy"] == pytest.approx(1 - 1 / separators.sum())  # L + 1 ids of each row


def test_scores_do_not_depend_on_the_batches(randomize, monkeypatch):
    model = randomize(LSTMConfig(embedding_dim=4, units=8).build_model(TASK.vocabulary_size))
    task = study.ReversalTask(model, SETTINGS)
    sums = task.sums(3, 301, seed=9)  # two batches, the second not full
    assert sums[:, 1].tolist() == [301 * 8, 301 * 4, 301, 301 * 3]
    assert study.means(sums)["first_half_loss"] >= math.log(6) - 0.1
    x, y = dataclasses.replace(TASK.with_length(3), batch_size=250, seed=12).batch(0)
    np.testing.assert_allclose(task.sums(3, 250, seed=9), study.batch_sums(model(x), x, y, TASK), rtol=1e-5)


def almost(ids, training=False):
    """A causal model of `TASK` that reverses, but is wrong where the id before is the letter 0 or 1."""
    ids = tf.convert_to_tensor(ids)
    place = tf.range(tf.shape(ids)[1])[None]
    separator = tf.argmax(ids == TASK.separator, axis=1, output_type=tf.int32)[:, None]
    source = tf.clip_by_value(2 * separator - 1 - place, 0, tf.shape(ids)[1] - 1)
    guess = tf.gather(ids, source, batch_dims=1)
    guess = tf.where(guess == TASK.start, TASK.end, guess)
    return sure(tf.where((place > separator) & (ids < 2), (guess + 1) % 6, guess))


def test_teacher_forcing_is_right_throughout_exactly_where_greedy_generation_is():
    x, y = dataclasses.replace(TASK.with_length(4), batch_size=200).batch(0)
    forced = (almost(x).numpy().argmax(-1) == y)[:, 5:].all(axis=1)
    completed = study.ReversalTask(almost, SETTINGS).complete(x[:, :6])
    np.testing.assert_array_equal((completed[:, 1:] == y).all(axis=1), forced)
    assert 0.1 < forced.mean() < 0.5
    assert scores_of(almost(x), x, y)["sequence_accuracy"] == pytest.approx(forced.mean())


@pytest.mark.parametrize("config", [TransformerConfig(8, 2, 2, 16, context_length=12), LSTMConfig(8, 16)])
def test_completion_is_greedy_generation_by_steps(randomize, config):
    model = randomize(config.build_model(TASK.vocabulary_size), scale=1.5)
    x, _ = dataclasses.replace(TASK.with_length(5), batch_size=40).batch(3)
    prompts = x[:, :7]
    rows, state = prompts, model.get_initial_state(40)
    for t in range(12):
        logits, state = model.step(rows[:, t : t + 1], state)
        if t >= 6:
            rows = np.append(rows, np.argmax(logits, -1)[:, None], axis=1)
    np.testing.assert_array_equal(study.ReversalTask(model, SETTINGS).complete(prompts), rows)
    assert len({*rows[:, 7:].flat}) > 2


@pytest.mark.parametrize(
    ("share", "is_passed", "words"), [(0.97, False, "not causal"), (0.99, True, "is causal"), (1.03, False, "learned")]
)
def test_the_check_tolerates_two_percent(share, is_passed, words):
    loss, groups = share * math.log(26), [{"trained": True, "examples": 10}]
    row = {"model": "lstm", "entropy": math.log(26), "first_half_loss": loss, "sequence_accuracy": 1, "groups": groups}
    passed, sentence = study.causality(row)
    assert passed is is_passed
    assert words in sentence
    assert f"{loss:.3f}" in sentence
    assert study.failures([row]) == ([] if passed else [sentence])
    assert sentence in study.verdict([row])


def test_a_row_is_decoded_to_its_letters():
    assert study.to_letters([TASK.start, 0, 5, TASK.separator, 5, 0, TASK.end], TASK) == "<af|fa>"


def test_training_validation_and_test_draw_from_seeds_of_their_own():
    seeds = [dataclasses.replace(SETTINGS, seed=seed).reversal.seed for seed in (0, 2**32 - 1)]
    drawn = [seed + part + length for part in (0, study.VALIDATION, study.TEST) for seed in seeds for length in (0, 9)]
    assert drawn == sorted({*drawn})
