"""The loop over a model of one layer, eagerly: what it goes back to, goes on from, refuses and keeps."""

import errno
import json
import os
import shutil
import signal
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from keras_seq import layers
from keras_seq.tracking import Summaries
from keras_seq.training import (
    AdamW,
    CheckpointError,
    TrainConfig,
    TrainingDiverged,
    TrainingInterrupted,
    checkpoints,
    compile_model,
    fit_resumable,
)
from keras_seq.training.callbacks import CheckpointCallback
from keras_seq.training.run_config import flatten
from keras_seq.training.run_folder import lock_run
from tests.training.backend_run import DiesAt, Killed
from tests.training.ends import CLOCKS, points

STEPS = 8


class Batches:
    """`(x [3, 2], y [3, 1])` of every step; those of poisoned steps are no numbers, the first so many times."""

    def __init__(self, poison=None, times=1):
        random = np.random.default_rng(1)
        self.x, self.y = (random.normal(size=(3 * STEPS, 3, n)).astype("float32") for n in (2, 1))
        self.poison, self.times = poison, times

    def __call__(self, first, last):
        x = self.x.copy()
        if self.times > 0 and self.poison is not None:
            x[self.poison] = np.nan
        self.times -= (first, last) != (0, 1)  # which config.json tells from other data
        return tf.data.Dataset.from_tensor_slices((x[first:last], self.y[first:last]))


def none(first, last):
    """No batches but the first, which config.json describes."""
    assert (first, last) == (0, 1), "trained on"
    return Batches()(first, last)


def train_line(folder, batches=None, steps=STEPS, callbacks=(), losses=(), seed=0, eager=True, final=None, **train):
    """Train a line in a folder; return its weights and the lines of metrics.jsonl, without clocks."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])  # named otherwise every time
    model.compile(AdamW(0.1), "mse", run_eagerly=eager, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    train = TrainConfig(**{"log_every": 2, "validate_every": 2, "checkpoint_every": 2, **train})
    values = iter(losses)

    def validate():
        return Summaries({"val_loss": next(values, 1.0)})

    more = {"config": {"seed": seed}, "callbacks": callbacks, "final_validate_fn": final}
    fit_resumable(folder, model, batches or Batches(), 6, steps, train, validate, **more)
    return model.get_weights(), lines(folder)


@pytest.fixture
def line(tmp_path):
    return lambda name="run", *arguments, **options: train_line(tmp_path / name, *arguments, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run at its defaults, and what `line` returns of it."""
    folder = tmp_path_factory.mktemp("line") / "run"
    return folder, train_line(folder)


@pytest.fixture
def whole(finished, tmp_path):
    """What `line` returns of a run at its defaults, which is done already."""
    shutil.copytree(finished[0], tmp_path / "run")
    return finished[1]


def lines(folder):
    texts = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [flatten(json.loads(text)) for text in texts]
    return [{name: value for name, value in line.items() if name.split(".")[0] not in CLOCKS} for line in lines]


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert one[1] == other[1]


class HalvesAt(keras.callbacks.Callback):
    """Half the learning rate from a step on."""

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 4:
            self.model.optimizer.lr_factor.assign(0.5)


def test_a_rollback_goes_on_from_the_checkpoint_with_half_the_learning_rate_and_a_kill_changes_nothing(line):
    often = {"log_every": 1, "validate_every": 4}
    weights, rolled = line(batches=Batches(poison=5), on_nan="rollback", **often)
    expected, plain = line("plain", callbacks=[HalvesAt()], **often)
    (note,) = (entry for entry in rolled if entry["split"] == "rollback")
    assert (note["step"], note["diverged_at"], note["lr_factor"]) == (4, 5, 0.5)
    assert_same((weights, [entry for entry in rolled if entry != note]), (expected, plain))
    assert [e["learning_rate"] for e in rolled if e["split"] == "train"] == pytest.approx([0.1] * 4 + [0.05] * 4)
    with pytest.raises(Killed):
        line("killed", Batches(poison=5), on_nan="rollback", callbacks=[DiesAt(5, fits=2)], **often)
    assert_same(line("killed", on_nan="rollback", **often), (weights, rolled))


def test_three_times_it_goes_back_and_the_fourth_time_it_gives_up(line, tmp_path):
    for _ in range(2):  # going on is giving up again
        with pytest.raises(TrainingDiverged, match="The loss of step 1 is not a number"):
            line(batches=Batches(poison=1, times=100), on_nan="rollback")
        factors = [entry["lr_factor"] for entry in lines(tmp_path / "run") if entry["split"] == "rollback"]
        assert factors == [0.5, 0.25, 0.125]
        assert [path.name for path in checkpoints.list_checkpoints(tmp_path / "run/checkpoints")] == [
            "step-00000000.safetensors"
        ]


def test_after_a_way_back_as_many_steps_run_at_once_as_are_counted(line):
    line(steps=3, eager=False)  # from the third step on one at a time, from the fourth two
    _, logged = line(batches=Batches(poison=5), on_nan="rollback", eager=False)
    assert [entry["step"] for entry in logged if entry["split"] == "train"] == [2, 3, 4, 6, 8]


def test_without_a_way_back_it_stops_and_the_last_checkpoint_is_there(line, tmp_path):
    with pytest.raises(TrainingDiverged, match=r"The loss of step 5 .*--train.on-nan rollback"):
        line(batches=Batches(poison=5))
    assert checkpoints.list_checkpoints(tmp_path / "run/checkpoints")[-1].name == "step-00000004.safetensors"


def test_a_kill_at_any_step_changes_nothing_and_neither_do_other_checkpoints(line):
    whole = line("whole", log_every=3, validate_every=5)
    for dies in (1, 7):
        with pytest.raises(Killed):
            line(f"dies at {dies}", callbacks=[DiesAt(dies)], log_every=3, validate_every=5, checkpoint_every=3)
        assert_same(line(f"dies at {dies}", log_every=3, validate_every=5), whole)


def test_intervals_may_change_at_a_step_that_is_none_of_theirs(line):
    with pytest.raises(Killed):
        line(callbacks=[DiesAt(5)], checkpoint_every=3)
    _, after = line(log_every=2, validate_every=8)
    assert [entry["step"] for entry in after if entry["split"] == "train"] == [2, 4, 6, 8]


@pytest.mark.usefixtures("whole")
def test_a_model_without_checkpoints_is_not_trained_anew_and_a_result_of_fewer_steps_goes(line, tmp_path):
    result, checkpoints_folder = tmp_path / "run/result.json", tmp_path / "run/checkpoints"
    result.touch()
    line(batches=none)
    assert result.exists()
    with pytest.raises(Killed):
        line(steps=12, callbacks=[DiesAt(10)])
    assert not result.exists()
    (tmp_path / "run/model.keras").touch()
    shutil.rmtree(checkpoints_folder)
    with pytest.raises(CheckpointError, match="has a model, and no checkpoint to go on from; expected the checkpoints"):
        line(steps=12)


@pytest.mark.usefixtures("whole")
def test_a_longer_run_goes_on_where_the_shorter_ended_and_a_shorter_is_refused(line):
    longer = line(steps=12)
    assert_same(longer, line("at once", steps=12))  # this learning rate has no end to move
    with pytest.raises(CheckpointError, match=r"length\.steps was 12 and is 10"):
        line(steps=10)


DAMAGES = {
    "something before it": lambda text: b"\xff" + text,
    "a line that is no record": lambda text: b"{}\n" + text,
    "the first line gone": lambda text: text.partition(b"\n")[2],
    "the last byte gone": lambda text: text[:-1],
    "half of it": lambda text: text[: len(text) // 2],
    "nothing": lambda text: b"",
    "zeros": lambda text: bytes(len(text)),
}


@pytest.mark.parametrize(("steps", "names"), [(8, DAMAGES), (12, ["the last byte gone"])])
def test_curves_that_are_corrupt_are_written_again_from_the_checkpoint(line, finished, tmp_path, steps, names):
    written = (finished[0] / "metrics.jsonl").read_bytes()
    for name in names:
        damage = DAMAGES[name]
        path = shutil.copytree(finished[0], tmp_path / name) / "metrics.jsonl"
        path.write_bytes(damage(written))
        with pytest.warns(UserWarning, match=r"metrics\.jsonl is corrupt: the lines up to step 8 .*kept as"):
            line(name, steps=steps)
        assert path.read_bytes().startswith(written), name
        assert path.with_name("metrics.jsonl.corrupt").read_bytes() == damage(written), name


def test_curves_that_are_gone_are_written_again_too(line, whole, tmp_path):
    (tmp_path / "run/metrics.jsonl").unlink()
    with pytest.warns(UserWarning, match=r"metrics\.jsonl is missing: the lines up to step 8"):
        assert_same(line(), whole)


def test_what_follows_the_lines_of_the_checkpoint_is_dropped_whatever_it_is(line, whole, tmp_path):
    with open(tmp_path / "run/metrics.jsonl", "ab") as file:
        file.write(b'1\n{}\n\0\0\n{"step": 8')
    assert_same(line(), whole)


def test_a_config_that_is_corrupt_is_written_again_from_the_checkpoint(line, whole, tmp_path):
    path = tmp_path / "run/config.json"
    written = path.read_bytes()
    for damage in (b"", written.replace(b'"seed": 0', b'"seed": 1')):
        path.write_bytes(damage)
        with pytest.warns(UserWarning, match=r"config\.json .* is restored from a checkpoint"):
            assert_same(line(), whole)
        assert path.read_bytes() == written
    path.unlink()
    with pytest.warns(UserWarning, match="is missing"), pytest.raises(CheckpointError, match="seed was 0 and is 1"):
        line(seed=1)


def test_a_signal_after_the_last_step_is_not_swallowed(line, monkeypatch):
    class PressedLate(CheckpointCallback):
        def on_train_end(self, logs=None):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("keras_seq.training.trainer.CheckpointCallback", PressedLate)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            line()
    finally:
        signal.signal(signal.SIGINT, before)


class Pressed:
    """The losses of validations; a signal comes while some of them run."""

    def __init__(self, losses, press):
        self.losses, self.press = iter(losses), press

    def __iter__(self):
        return self

    def __next__(self):
        self.press -= 1
        if self.press == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return next(self.losses)


@pytest.mark.parametrize(("cut", "patience"), [(2, None), pytest.param(4, None, marks=pytest.mark.rare), (4, 2)])
def test_a_validation_that_a_stop_cut_off_is_done_when_the_run_goes_on(line, tmp_path, cut, patience):
    """Of steps 2, 4, 6 and 8: the second is the best one, the fourth ends the patience or the run."""
    losses, often = [3.0, 2.0, 2.5, 2.6], {"log_every": 3, "patience": patience, "checkpoint_every": 100}
    steps = 8 if patience is None else 24
    whole = line("whole", losses=losses, steps=steps, **often)
    with pytest.raises(TrainingInterrupted) as stop:
        line(losses=Pressed(losses, press=cut), steps=steps, **often)
    assert stop.value.path.name == f"step-{2 * cut:08d}.safetensors"
    assert [e["step"] for e in lines(tmp_path / "run") if e["split"] == "validation"] == [2, 4, 6, 8][: cut - 1]
    with pytest.raises(TrainingInterrupted):  # and once more
        line(losses=Pressed(losses[cut - 1 :], press=1), steps=steps, **often)
    assert_same(line(losses=losses[cut - 1 :], steps=steps, **often), whole)
    assert points(tmp_path / "run") == points(tmp_path / "whole")
    for name in ("best", "step-00000008"):
        one, other = (load_file(tmp_path / f"{run}/checkpoints/{name}.safetensors") for run in ("run", "whole"))
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[key], other[key]) for key in one)


class PressesAt(keras.callbacks.Callback):
    """A signal while the steps after one run, once."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            self.step = None
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_stop_in_a_step_that_is_validated_does_not_wait_for_it(line, tmp_path):
    with pytest.raises(TrainingInterrupted):
        line(losses=[3.0], callbacks=[PressesAt(2)])
    assert [e["step"] for e in lines(tmp_path / "run") if e["split"] == "validation"] == [2]
    assert_same(line(losses=[2.0, 1.5]), line("whole", losses=[3.0, 2.0, 1.5]))


def test_the_final_scores_are_computed_once_and_are_in_no_curve(line, tmp_path):
    calls = []

    def final():
        calls.append(1)
        return Summaries({"val_loss": 7.0})

    weights, logged = line(final=final, losses=[3.0, 2.0, 2.5, 2.6])
    plain = line("plain", losses=[3.0, 2.0, 2.5, 2.6])
    renamed = [{name.removesuffix("_sample"): value for name, value in entry.items()} for entry in logged]
    assert_same((weights, renamed), plain)
    assert [entry.get("val_loss_sample") for entry in logged if entry["split"] == "validation"] == [3.0, 2.0, 2.5, 2.6]
    assert calls == [1]


def test_the_result_is_a_point_at_each_end(line, tmp_path):
    for steps in (2, 2, 4):  # done again, and made longer
        line(steps=steps, final=lambda: Summaries({"val_loss": 7.0, "a/b": 1.0}))
    assert [point[:2] for point in points(tmp_path / "run") if point[0].startswith("Result")] == [
        ("Result/val_loss", 2 * 6),
        ("Result/val_loss", 4 * 6),
    ]


def test_a_stop_while_the_final_scores_are_computed_keeps_the_training(line, tmp_path):
    def pressed():
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("measured on")

    with pytest.raises(TrainingInterrupted) as stop:
        line(final=pressed)
    assert stop.value.path.name == "step-00000008.safetensors"
    assert_same(line(batches=none, final=lambda: Summaries({})), line("whole", final=lambda: Summaries({})))


def test_a_stop_in_a_step_that_diverges_is_heard_after_the_way_back(line):
    with pytest.raises(TrainingInterrupted) as stop:
        line(batches=Batches(poison=5), on_nan="rollback", callbacks=[PressesAt(4)])
    assert stop.value.path.name == "step-00000006.safetensors"


def test_patience_ends_the_training_once_and_for_all(line, tmp_path, capsys):
    losses = [3.0, 2.0, 2.5, 2.6]
    _, logged = line(losses=losses, patience=2, steps=24, log_every=3)
    assert [entry["step"] for entry in logged if entry["split"] == "validation"] == [2, 4, 6, 8]
    assert logged[-1]["step"] == 8
    assert logged[-1]["split"] == "train"  # the open interval is closed

    _, again = line(batches=none, patience=2, steps=24, log_every=3)
    assert again == logged
    assert "run has run out of patience; the files" in capsys.readouterr().out
    (best,) = (v for name, v in load_file(tmp_path / "run/checkpoints/best.safetensors").items() if "iteration" in name)
    assert best == 4


def test_a_folder_that_is_in_use_is_refused_and_nothing_is_written(line, tmp_path):
    (tmp_path / "run").mkdir()
    with lock_run(tmp_path / "run"), pytest.raises(BlockingIOError, match="another process trains there"):
        line()
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock", "checkpoints"}


class Package(types.ModuleType):
    """Stands for trackio: the points of each run, by its name."""

    def __init__(self):
        super().__init__("trackio")
        self.runs = {}

    def init(self, name, config, **_):
        points = self.runs.setdefault(name, [])
        return types.SimpleNamespace(
            log=lambda values, step: points.append((step, values)), finish=lambda: points.append(("end", config))
        )


def test_a_tracker_gets_the_points_of_metrics_jsonl_in_one_run_and_changes_nothing(line, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackio", package := Package())
    plain = line("plain", losses=[3.0, 2.0, 2.5, 2.6])
    assert package.runs == {}
    with pytest.raises(Killed):
        line(tracker="trackio", callbacks=[DiesAt(4)], losses=[3.0, 2.0])
    assert_same(line(tracker="trackio", losses=[2.5, 2.6]), plain)
    assert points(tmp_path / "run") == points(tmp_path / "plain")
    ((name, sent),) = package.runs.items()
    assert name.startswith("run-")
    assert [step for step, _ in sent] == [12, 12, 24, 24, "end", 36, 36, 48, 48, 48, "end"]
    assert sent.pop(-2) == (48, {"Result/val_loss": 2.6})
    first, second = (values for step, values in sent if step == "end")
    assert first == second
    assert {"seed": 0, "train.log_every": 2, "optimizer.class": "keras_seq>AdamW"}.items() <= first.items()
    shown = [next(iter(values.values())) for step, values in sent if step != "end"]
    assert shown == [entry.get("loss", entry.get("val_loss")) for entry in plain[1]]


def test_a_tracker_that_is_not_installed_is_refused_before_anything_is_written(line, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"tracker='wandb'.* pip install wandb"):
        line(tracker="wandb")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_what_was_there_goes_on(line, whole, tmp_path, monkeypatch):
    fsync, left = os.fsync, 0

    def full(number):
        nonlocal left
        left -= 1
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(number)

    for left in (9, 21):
        name = f"full at {left}"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left on device"):
                line(name)
        assert not list((tmp_path / name).rglob("*.partial*"))
        assert_same(line(name), whole)


def test_a_folder_that_vanishes_is_reported(line, tmp_path):
    class Vanishes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 2:
                (tmp_path / "run").rename(tmp_path / "elsewhere")

    with pytest.raises(FileNotFoundError, match=r"metrics\.jsonl"):
        line(callbacks=[Vanishes()])
    assert checkpoints.list_checkpoints(tmp_path / "elsewhere/checkpoints")[-1].name == "step-00000002.safetensors"
    assert not (tmp_path / "run").exists()


def test_a_text_of_one_character_can_be_learned():
    model = keras.Sequential([keras.Input((3,), dtype="int32"), keras.layers.Embedding(1, 2), keras.layers.Dense(1)])
    compile_model(model, TrainConfig(optimizer="adamw"), 4)
    model.run_eagerly, model.jit_compile = True, False
    assert model.train_on_batch(np.zeros((2, 3), "int32"), np.zeros((2, 3), "int32")) == 0


@pytest.mark.parametrize(
    ("precision", "tokens_per_step", "whole"),
    [
        ("float32", 12 * 64, True),
        ("float32", 64 * 256, False),
        ("bfloat16", 64, True),
        ("bfloat16", 12 * 64, False),
        ("float16", 12 * 64, False),
    ],
)
def test_a_step_is_compiled_whole_where_that_is_faster(monkeypatch, precision, tokens_per_step, whole):
    """1.8 million weights, and the CPU of the tests."""
    model = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(1800, 1000)])
    compile_model(model, TrainConfig(optimizer="adamw", precision=precision), 4, tokens_per_step=tokens_per_step)
    assert model.jit_compile is whole
    monkeypatch.setattr("keras_seq.training.optimizers.on_cpu", lambda: False)
    compile_model(model, TrainConfig(optimizer="adamw", precision=precision), 4, tokens_per_step=tokens_per_step)
    assert model.jit_compile


def test_a_step_with_a_loop_over_positions_is_compiled_in_parts():
    model = keras.Sequential([keras.Input((4, 2)), layers.LSTM(3, return_sequences=True)])
    compile_model(model, TrainConfig(optimizer="adamw"), 4, tokens_per_step=8)
    assert not model.jit_compile
