import os

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.models import LSTM
from keras_seq.training import CheckpointError, Train, checkpoints
from keras_seq.training.language import carried
from keras_seq.training.loop import compile_for


@pytest.fixture
def make():
    """A compiled training model with carry, dropout and half precision, none of its numbers a default one."""

    def make(seed=None, units=4, step=7):
        model = LSTM(embedding_dim=3, units=units, dropout=0.5).build(9, dtype="mixed_bfloat16")
        trainee = carried(model, batch_size=2, length=5)
        compile_for(trainee, Train(), total_steps=10)
        if seed is not None:
            random = np.random.default_rng(seed)
            for variable in everything(trainee):
                whole = "int" in variable.dtype
                values = random.integers(100, size=variable.shape) if whole else random.normal(size=variable.shape)
                variable.assign(ops.cast(values, variable.dtype))
            trainee.optimizer.iterations.assign(step)
        return trainee

    return make


def everything(trainee):
    return [*trainee.variables, *trainee.optimizer.variables]


def numpy(trainee):
    return [ops.convert_to_numpy(v).copy() for v in everything(trainee)]


def assert_same(got, expected):
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_everything_comes_back_to_the_last_bit(make, tmp_path):
    written, read = make(seed=1), make()
    assert "bfloat16" in {v.dtype for v in written.variables}  # the carried h
    assert any("seed" in v.path for v in written.variables)
    path = checkpoints.save(tmp_path, written)
    assert path.name == "step-00000007.safetensors"
    assert checkpoints.load(path, read) == 7
    assert_same(numpy(read), numpy(written))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-10], lambda data: data[:5], lambda data: b"", lambda data: b"x" * 50]
)
def test_a_torn_file_is_refused_and_nothing_is_assigned(make, tmp_path, damage):
    trainee = make(seed=1)
    path = checkpoints.save(tmp_path, trainee)
    path.write_bytes(damage(path.read_bytes()))
    other = make(seed=2)
    before = numpy(other)
    with pytest.raises(CheckpointError, match=r"step-00000007.safetensors: not a whole checkpoint"):
        checkpoints.load(path, other)
    assert_same(numpy(other), before)


def test_a_file_that_is_not_there_is_refused(make, tmp_path):
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        checkpoints.load(tmp_path / "step-00000001.safetensors", make())


def test_another_models_checkpoint_is_refused_and_nothing_is_assigned(make, tmp_path):
    path = checkpoints.save(tmp_path, make(seed=1))
    wider, other = make(seed=2, units=5), keras.Sequential([keras.layers.Dense(2)])
    other.build((None, 3))
    other.compile("sgd", "mse")
    for trainee in (wider, other):
        before = numpy(trainee)
        with pytest.raises(CheckpointError, match="belongs to another model; it differs in "):
            checkpoints.load(path, trainee)
        assert_same(numpy(trainee), before)


def test_only_the_last_two_are_kept_in_the_order_of_their_steps(make, tmp_path):
    trainee = make(seed=1)
    (tmp_path / "step-notes.safetensors").write_text("mine")
    for step in (5, 99_999_999, 100_000_000):
        trainee.optimizer.iterations.assign(step)
        checkpoints.save(tmp_path, trainee)
    names = [path.name for path in checkpoints.found(tmp_path)]
    assert names == ["step-99999999.safetensors", "step-100000000.safetensors"]
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "step-notes.safetensors"])


def test_a_write_that_fails_leaves_the_old_ones_and_nothing_half_written(make, tmp_path, monkeypatch):
    trainee = make(seed=1)
    for step in (1, 2):
        trainee.optimizer.iterations.assign(step)
        checkpoints.save(tmp_path, trainee)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(values, path):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoints, "save_file", fail)
    trainee.optimizer.iterations.assign(3)
    with pytest.raises(OSError, match="no space left"):
        checkpoints.save(tmp_path, trainee)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_is_not_there_holds_none(tmp_path):
    assert checkpoints.found(tmp_path / "nowhere") == []
