import contextlib
import json
import math
import os
import signal
import types

import keras
import numpy as np
import pytest

from keras_seq.files import StopRequest, StopRequested
from keras_seq.tracking import Summaries
from keras_seq.training import AdamW, TrainConfig, TrainingDiverged, TrainingInterrupted, callbacks, checkpoints
from keras_seq.training.callbacks import TerminateOnNonFinite, ValidationCallback
from keras_seq.training.log import MetricsLogger

STEPS, TOKENS = 8, 10


class Board:
    """What TensorBoard would be given."""

    def __init__(self):
        self.points = []

    def record(self, tokens, logs):
        self.points.append((tokens, logs))


@pytest.fixture
def fit(tmp_path):
    """Fits a line, a few steps at a time; returns the lines of metrics.jsonl and what the board was given."""

    def fit(every, at_once=1, callbacks=(), poison=None, last=STEPS):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(AdamW(0.1), "mse", steps_per_execution=at_once, jit_compile=False, run_eagerly=at_once == 1)
        model.optimizer.build(model.trainable_variables)
        random = np.random.default_rng(1)
        x, y = random.normal(size=(STEPS * 3, 2)), random.normal(size=(STEPS * 3, 1))
        if poison is not None:
            x[3 * poison] = np.nan
        path, board = tmp_path / f"every-{every}.jsonl", Board()
        path.unlink(missing_ok=True)
        logger = MetricsLogger(path, board, TOKENS, every, last, characters_per_token=2.0)
        model.fit(x, y, batch_size=3, shuffle=False, verbose=0, callbacks=[TerminateOnNonFinite(), logger, *callbacks])
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()], board.points

    return fit


def test_the_loss_of_an_interval_is_the_mean_over_exactly_its_steps(fit):
    single, _ = fit(every=1)
    losses = [line["loss"] for line in single]
    assert len(set(losses)) == STEPS
    intervals, points = fit(every=3)
    expected = [np.mean(losses[:3]), np.mean(losses[3:6]), np.mean(losses[6:])]
    assert [line["step"] for line in intervals] == [3, 6, 8]  # the last step always has a line
    assert [line["tokens"] for line in intervals] == [30, 60, 80]
    np.testing.assert_allclose([line["loss"] for line in intervals], expected, rtol=1e-5)
    np.testing.assert_allclose([line["bits_per_character"] for line in intervals], np.array(expected) / 2 / math.log(2))
    assert [tokens for tokens, _ in points] == [30, 60, 80]
    np.testing.assert_allclose([logs["loss"] for _, logs in points], expected, rtol=1e-5)


def test_many_steps_at_once_change_no_line(fit):
    def plain(lines):
        clocks = {"seconds", "other_seconds", "tokens_per_second"}
        return [{k: v for k, v in line.items() if k not in clocks} for line in lines]

    one, three = (fit(every=3, at_once=n)[0] for n in (1, 3))
    for a, b in zip(plain(one), plain(three), strict=True):
        assert (a.pop("split"), b.pop("split")) == ("train", "train")
        assert a == pytest.approx(b, rel=1e-5)


def test_speed_is_the_tokens_of_the_interval_by_its_own_seconds(fit):
    lines, _ = fit(every=4)
    first, second = lines
    assert first["tokens_per_second"] == pytest.approx(4 * TOKENS / first["seconds"])
    assert second["tokens_per_second"] == pytest.approx(4 * TOKENS / (second["seconds"] - first["seconds"]))


class Keeps(keras.callbacks.Callback):
    """The weights after some step, and the model."""

    def __init__(self, step=None):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            self.kept = self.model.get_weights()


def test_a_loss_that_is_no_number_stops_the_run_and_no_step_is_made_from_it_on(fit):
    keeps = Keeps(step=5)
    for at_once in (1, 8):
        with pytest.raises(
            TrainingDiverged, match=r"The loss of step 5 is not a number: .*--train.learning-rate"
        ) as fault:
            fit(every=4, at_once=at_once, poison=5, callbacks=[keeps])
        assert fault.value.step == 5
        for now, before in zip(keeps.model.get_weights(), keeps.kept, strict=True):
            np.testing.assert_array_equal(now, before)


def validate(losses, patience=None):
    """What `ValidationCallback` does with the losses of validations, without a model; returns it and its steps."""
    results, steps = iter(losses), []
    logger = types.SimpleNamespace(
        write=lambda step, *_: steps.append(step), tokens_per_step=1, tracker=Board(), on_interval=lambda *_: None
    )
    logger.timing = contextlib.nullcontext
    logger.tracker.write = lambda *_: None
    validation = ValidationCallback(lambda: Summaries({"val_loss": next(results)}), logger, 1, 100, patience)
    validation.set_model(types.SimpleNamespace(stop_training=False, metrics_variables=[]))
    for step in range(1, len(losses) + 1):
        if not validation.model.stop_training:
            validation.on_interval(step, {"loss": 1.0})
    return validation, steps


def test_the_best_validation_is_the_first_of_the_lowest():
    done, steps = validate([3.0, math.nan, 2.0, 2.0, 2.5])
    assert (done.best, done.best_step, done.wait, steps) == (2.0, 3, 2, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(("patience", "last"), [(1, 2), (2, 6), (3, 7), (None, 8)])
def test_training_ends_when_the_patience_does(patience, last):
    losses = [3.0, 3.5, 2.0, 1.0, 1.0, 1.5, 1.2, 1.1]
    done, steps = validate(losses, patience)
    assert steps[-1] == last
    assert done.out_of_patience == (patience is not None)
    assert done.model.stop_training == (patience is not None)


def test_patience_ends_where_no_validation_gave_a_number(capsys):
    done, steps = validate([math.nan, math.inf, math.nan], patience=2)
    assert (done.best_step, steps) == (None, [1, 2])
    assert "none was finite" in capsys.readouterr().out


def test_a_validation_that_was_cut_off_leaves_no_trace_and_is_missed():
    def stopped():
        raise StopRequested

    logger = types.SimpleNamespace(write=None, tokens_per_step=1, tracker=None)
    validation = ValidationCallback(stopped, logger, 2, 9)
    validation.set_model(types.SimpleNamespace(metrics_variables=[]))
    validation.on_interval(4, {"loss": 1.0})
    assert (validation.last_summaries, validation.best_step, validation.wait) == (None, None, 0)
    lines = [{"step": 2, "split": "validation"}, {"step": 4, "split": "train"}]
    assert [step for step in range(10) if validation.is_missing(step, lines)] == [4, 6, 8, 9]


def test_patience_goes_on_from_the_lines_that_were_written():
    losses = [3.0, 3.5, 2.0, 2.5]
    whole, _ = validate(losses, patience=4)
    lines = [{"step": n, "split": "validation", "val_loss": loss} for n, loss in enumerate(losses, 1)]
    other = ValidationCallback(None, None, 1, 100, patience=4)
    other.restore_from([{"step": 9, "split": "train", "loss": 0.0}, *lines])
    assert (other.best, other.best_step, other.wait) == (whole.best, whole.best_step, whole.wait)


def test_a_validation_is_of_the_step_it_stands_at(fit, tmp_path):
    results = iter([Summaries({"val_loss": 2.0}, {"sample": "ab"}), Summaries({"val_loss": 1.0})])

    class Shows(Board):
        def write(self, tokens, summaries):
            self.points.append((tokens, summaries))

    board, path = Shows(), tmp_path / "validation.jsonl"
    logger = MetricsLogger(path, board, TOKENS, 4, STEPS)
    validation = ValidationCallback(lambda: next(results), logger, every=5, last_step=STEPS)
    fit(every=4, callbacks=[validation])
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"step": 5, "tokens": 50, "split": "validation", "val_loss": 2.0},
        {"step": 8, "tokens": 80, "split": "validation", "val_loss": 1.0},
    ]
    assert [(tokens, summaries.texts) for tokens, summaries in board.points] == [(50, {"sample": "ab"}), (80, {})]
    assert validation.last_summaries.scalars == {"val_loss": 1.0}


class Model:
    """As much of a model as the callback looks at."""

    def __init__(self):
        self.optimizer = types.SimpleNamespace(step=0)
        self.stop_training = False


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """Goes through steps; returns what was written, in order: flushes, checkpoints and copies of the best."""

    def steps(last, best=(), at=None, stop_at=None, **train):
        written, model = [], Model()
        validation = types.SimpleNamespace(best_step=None)
        logger = types.SimpleNamespace(flush=lambda: written.append("flush"), timing=contextlib.nullcontext)

        def save(folder, training_model, keep):
            written.append((training_model.optimizer.step, keep))
            return folder / f"step-{training_model.optimizer.step:08d}.safetensors"

        monkeypatch.setattr(checkpoints, "save", save)
        monkeypatch.setattr(checkpoints, "save_best_copy", lambda path: written.append(path.name))
        stop = StopRequest()
        saver = callbacks.CheckpointCallback(tmp_path, TrainConfig(**train), last, logger, validation, stop)
        saver.set_model(model)
        saver.on_train_begin()
        with stop.listening():
            for step in range(1, last + 1):
                model.optimizer.step = step
                if step in best:
                    validation.best_step = step
                if at is not None:
                    at(step)
                model.stop_training = step == stop_at
                saver.on_train_batch_end(step)
                if model.stop_training:
                    break
        return written

    return steps


def test_they_come_at_multiples_at_the_best_and_at_the_end_and_the_curves_are_durable_first(steps):
    assert steps(7, best=(2, 6), checkpoint_every=3, max_checkpoints_to_keep=4) == [
        *("flush", (2, 4), "step-00000002.safetensors"),
        *("flush", (3, 4)),
        *("flush", (6, 4), "step-00000006.safetensors"),
        *("flush", (7, 4)),
    ]


def test_the_step_at_which_patience_ended_has_one(steps):
    assert steps(7, stop_at=5, checkpoint_every=100) == ["flush", (5, 2)]


def test_they_come_after_seconds_too(steps, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])

    def tick(step):
        now[0] += 1.0

    written = steps(8, at=tick, checkpoint_every=4, checkpoint_every_seconds=3.0)
    assert [step for step, _ in (entry for entry in written if entry != "flush")] == [3, 4, 7, 8]


def test_where_training_may_go_back_there_is_one_before_the_first_step(steps):
    assert steps(1, on_nan="rollback") == ["flush", (0, 2), "flush", (1, 2)]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_the_step_end_writes_a_checkpoint_and_is_reported(steps, tmp_path, number, capfd):
    before = signal.getsignal(number)

    def press(step):
        if step == 2:
            os.kill(os.getpid(), number)

    with pytest.raises(TrainingInterrupted) as stop:
        steps(5, at=press, checkpoint_every=100)
    assert stop.value.path == tmp_path / "step-00000002.safetensors"
    assert stop.value.signal_number == number
    assert signal.getsignal(number) == before
    assert "Stopping after the running steps" in capfd.readouterr().err


def test_a_signal_that_comes_while_a_step_is_looked_at_waits_for_the_next(steps, tmp_path, monkeypatch):
    running = []

    def clock():  # called after the stop request was read
        if running == [2]:
            running.clear()
            os.kill(os.getpid(), signal.SIGINT)
        return 0.0

    monkeypatch.setattr(callbacks.time, "monotonic", clock)
    with pytest.raises(TrainingInterrupted) as stop:
        steps(
            5,
            at=lambda step: running.append(step) if step == 2 else None,
            checkpoint_every=9,
            checkpoint_every_seconds=9,
        )
    assert stop.value.path == tmp_path / "step-00000003.safetensors"


def test_a_signal_is_heard_though_nobody_reads_what_is_said(steps, monkeypatch):
    def press(step):
        monkeypatch.setattr(os, "write", broken)
        os.kill(os.getpid(), signal.SIGINT)

    def broken(*_):
        raise BrokenPipeError

    with pytest.raises(TrainingInterrupted):
        steps(5, at=press)


def test_a_second_signal_stops_at_once(steps):
    def press(step):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt) as stop:
        steps(5, at=press)
    assert not isinstance(stop.value, TrainingInterrupted)
    assert stop.value.args == (signal.SIGTERM,)


def test_no_handler_of_all_errors_swallows_a_stop():
    assert not issubclass(TrainingInterrupted, Exception)
