import contextlib
import os
import signal
import types

import pytest

from keras_seq.stop_signals import StopRequest
from keras_seq.training import TrainConfig, TrainingInterrupted, checkpoint_callback, checkpoints


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
        saver = checkpoint_callback.CheckpointCallback(tmp_path, TrainConfig(**train), last, logger, validation, stop)
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
    monkeypatch.setattr(checkpoint_callback.time, "monotonic", lambda: now[0])

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

    monkeypatch.setattr(checkpoint_callback.time, "monotonic", clock)
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
