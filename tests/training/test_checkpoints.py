import errno
import json
import os
import tracemalloc
import zipfile

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from safetensors.numpy import load_file, save_file

from keras_seq.models import LSTMConfig
from keras_seq.training import SGD, CheckpointError, TrainConfig, checkpoints, stateful_training_model
from keras_seq.training.optimizers import compile_model

pytestmark = pytest.mark.any_backend


@pytest.fixture
def make():
    """A compiled training model with carried state, dropout and half precision, none of its numbers a default one."""

    def make(seed=None, units=4, step=7):
        model = LSTMConfig(embedding_dim=3, units=units, dropout=0.5).build_model(9, dtype="mixed_bfloat16")
        training_model = stateful_training_model(model, batch_size=2, sequence_length=5)
        compile_model(training_model, TrainConfig(), total_steps=10)
        if seed is not None:
            random = np.random.default_rng(seed)
            for variable in everything(training_model):
                integers = "int" in variable.dtype
                values = random.integers(100, size=variable.shape) if integers else random.normal(size=variable.shape)
                variable.assign(ops.cast(values, variable.dtype))
            training_model.optimizer.iterations.assign(step)
        return training_model

    return make


def everything(training_model):
    return [*training_model.variables, *training_model.optimizer.variables]


def numpy(training_model):
    return [ops.convert_to_numpy(v).copy() for v in everything(training_model)]


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


def test_another_models_checkpoint_and_one_that_is_torn_or_gone_are_refused_and_nothing_is_assigned(make, tmp_path):
    path, other = checkpoints.save(tmp_path, make(seed=1)), keras.Sequential([keras.layers.Dense(2)])
    other.build((None, 3))
    other.compile(SGD(), "mse")
    for training_model in (wider := make(seed=2, units=5), other):
        before = numpy(training_model)
        with pytest.raises(CheckpointError, match="belongs to another model; it differs in "):
            checkpoints.load(path, training_model)
        assert_same(numpy(training_model), before)
    before, data = numpy(wider), path.read_bytes()
    for damaged in (data[:-10], b"x" * 50, None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"step-00000007.safetensors is not intact"):
            checkpoints.load(path, wider)
        assert_same(numpy(wider), before)


@pytest.fixture
def small():
    """A compiled model of one weight; at a step its weight is the step."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, name="line")])
    model.compile(SGD(), "mse")
    model.optimizer.build(model.trainable_variables)

    def at(step):
        model.optimizer.iterations.assign(step)
        model.layers[0].kernel.assign([[step]])
        return model

    return at


def names(folder):
    return [path.name for path in checkpoints.list_checkpoints(folder)]


def test_only_the_last_ones_are_kept_in_the_order_of_their_steps(small, tmp_path):
    (tmp_path / "step-notes.safetensors").write_text("mine")
    steps = (5, 6, 99_999_999, 100_000_000)
    for step in steps:
        checkpoints.save(tmp_path, small(step), max_to_keep=2)
    last = ["step-99999999.safetensors", "step-100000000.safetensors"]
    assert names(tmp_path) == last
    assert sorted(os.listdir(tmp_path)) == sorted([*last, "latest", "step-notes.safetensors"])
    for step in steps:
        checkpoints.save(tmp_path, small(step), max_to_keep=3)
    assert names(tmp_path) == ["step-00000006.safetensors", *last]


def test_the_best_outlives_its_step(small, tmp_path):
    checkpoints.save_best_copy(checkpoints.save(tmp_path, small(1)))
    for step in (2, 3, 4):
        checkpoints.save(tmp_path, small(step))
    assert names(tmp_path) == ["step-00000003.safetensors", "step-00000004.safetensors"]
    assert checkpoints.load(tmp_path / "best.safetensors", small(9)) == 1


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "flipped": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "link": lambda path: path.rename(path.with_name("x")) and path.symlink_to(path.with_name("x")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_instead_of_a_corrupt_one_the_one_before_is_used_with_a_warning(small, tmp_path, damage):
    for step in (1, 2):
        path = checkpoints.save(tmp_path, small(step))
    damage(path)
    training_model = small(9)
    with pytest.warns(UserWarning, match=r"step-00000002.safetensors is not intact.* resumes from step 1\."):
        assert checkpoints.load_latest(tmp_path, training_model) == 1
    assert float(ops.convert_to_numpy(training_model.layers[0].kernel)[0, 0]) == 1
    assert names(tmp_path) == ["step-00000001.safetensors"]  # or the damaged one would count as one of the last
    assert checkpoints.load_latest(tmp_path, training_model) == 1  # warned once


def test_what_cannot_be_read_may_be_intact_and_stays_where_it_is(small, tmp_path, monkeypatch):
    paths = [checkpoints.save(tmp_path, small(step)) for step in (1, 2)]
    monkeypatch.setattr(checkpoints, "read_arrays", lambda path, _: tmp_path.read_bytes())  # a folder: not for reading
    with pytest.raises(IsADirectoryError):
        checkpoints.load_latest(tmp_path, small(9))
    assert checkpoints.list_checkpoints(tmp_path) == paths


def test_all_that_are_not_intact_are_named(small, tmp_path):
    for path in [checkpoints.save(tmp_path, small(step), max_to_keep=3) for step in (1, 2, 3)][1:]:
        flip(path)
    with pytest.warns(UserWarning, match=r"00000003.* not intact.*00000002.* not intact.* resumes from step 1\."):
        assert checkpoints.load_latest(tmp_path, small(9)) == 1


def test_a_header_without_metadata_is_not_intact(small, tmp_path):
    header = b'{"__metadata__":null}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(checkpoints.CorruptCheckpointError, match="not intact"):
        checkpoints.load(tmp_path / "a.safetensors", small(1))


def test_that_the_latest_is_gone_is_noticed(small, tmp_path):
    for step in (1, 2):
        path = checkpoints.save(tmp_path, small(step))
    path.unlink()
    with pytest.warns(UserWarning, match=r"'step-00000002.safetensors' is missing. .* from step 1\."):
        assert checkpoints.load_latest(tmp_path, small(9)) == 1
    (tmp_path / "latest").write_text("../" * 1000)
    with pytest.warns(UserWarning, match="latest is corrupt") as warned:
        assert checkpoints.load_latest(tmp_path, small(9)) == 1
    assert len(str(warned[0].message)) < 500
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").mkdir()
    with pytest.warns(UserWarning, match=r"latest is corrupt, .*, and the old file is kept as latest\.corrupt"):
        assert checkpoints.load_latest(tmp_path, small(9)) == 1
    assert (tmp_path / "latest").read_text() == "step-00000001.safetensors"


def test_a_kill_before_the_name_of_the_latest_was_written_is_no_loss_later(small, tmp_path):
    for step in (1, 2):
        checkpoints.save(tmp_path, small(step))
    (tmp_path / "latest").write_text("step-00000001.safetensors")
    for _ in range(2):  # a warning would be an error
        assert checkpoints.load_latest(tmp_path, small(9)) == 2
        checkpoints.prune(tmp_path, 1)


def test_where_there_is_none_training_begins(small, tmp_path):
    assert checkpoints.load_latest(tmp_path, small(0)) == 0
    assert checkpoints.load_latest(tmp_path / "nowhere", small(0)) == 0
    assert checkpoints.list_checkpoints(tmp_path / "nowhere") == []


@pytest.mark.parametrize("change", ["name", "type", "shape"])
def test_one_of_another_model_is_refused_and_stays(small, tmp_path, change):
    path = checkpoints.save(tmp_path, small(2))
    _, arrays = checkpoints.read_arrays(path, 10**6)
    (name,) = (name for name in arrays if "kernel" in name)
    value = arrays.pop(name)
    others = {
        "name": {"../../\x1bevil" * 1000: value},
        "type": {name: value.astype("float64")},
        "shape": {name: value[0]},
    }
    checkpoints.write_arrays(path, {**arrays, **others[change]}, {})
    training_model = small(9)
    with pytest.raises(CheckpointError, match="belongs to another model") as refused:
        checkpoints.load_latest(tmp_path, training_model)
    assert len(str(refused.value)) < 1000
    assert str(refused.value).isprintable()
    assert float(ops.convert_to_numpy(training_model.layers[0].kernel)[0, 0]) == 9
    assert path.exists()


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refuse(*arguments, **more):
    raise FULL


@pytest.mark.parametrize("operation", ["os.fsync", "os.replace", "pathlib.Path.write_bytes", "pathlib.Path.write_text"])
def test_a_write_that_fails_names_the_file_and_leaves_the_old_ones(small, tmp_path, monkeypatch, operation):
    for step in (1, 2):
        checkpoints.save(tmp_path, small(step))
    before = {path.name: path.read_bytes() for path in checkpoints.list_checkpoints(tmp_path)}
    training_model = small(3)
    with monkeypatch.context() as patch:
        patch.setattr(operation, refuse)
        with pytest.raises(OSError, match="No space left") as fault:
            checkpoints.save(tmp_path, training_model)
    assert fault.value.filename in (str(tmp_path / "step-00000003.safetensors"), str(tmp_path / "latest"))
    after = {path.name: path.read_bytes() for path in checkpoints.list_checkpoints(tmp_path)}
    assert after.items() >= before.items()
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_vanished_is_an_error(small, tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoints.save(tmp_path / "vanished", small(1))


def test_the_best_is_taken_where_it_is_the_latest_that_is_whole(small, tmp_path):
    checkpoints.save(tmp_path, small(1))
    last = checkpoints.save(tmp_path, small(2))
    checkpoints.save_best_copy(last)
    flip(last)
    training_model = small(9)
    with pytest.warns(UserWarning, match=r"step-00000002.safetensors is not intact.* resumes from step 2\."):
        assert checkpoints.load_latest(tmp_path, training_model) == 2
    assert float(ops.convert_to_numpy(training_model.layers[0].kernel)[0, 0]) == 2
    for path in checkpoints.list_checkpoints(tmp_path):
        path.unlink()
    (tmp_path / "latest").unlink()
    with pytest.warns(UserWarning, match=r"no checkpoint except best.safetensors\. .* from step 2\."):
        assert checkpoints.load_latest(tmp_path, training_model) == 2
    assert names(tmp_path) == ["step-00000002.safetensors"]
    assert checkpoints.load_latest(tmp_path, training_model) == 2  # warned once


def test_a_best_that_is_older_or_corrupt_is_left_alone(small, tmp_path):
    checkpoints.save_best_copy(checkpoints.save(tmp_path, small(1)))
    for step in (2, 3):
        path = checkpoints.save(tmp_path, small(step))
    flip(path)
    with pytest.warns(UserWarning, match=r"resumes from step 2\."):
        assert checkpoints.load_latest(tmp_path, small(9)) == 2
    flip(tmp_path / "step-00000002.safetensors")
    flip(tmp_path / "best.safetensors")
    with pytest.warns(UserWarning, match=r"resumes from step 0\."):
        assert checkpoints.load_latest(tmp_path, small(9)) == 0


@pytest.mark.parametrize("text", ["\0" * 25, "", "step-2"])
def test_a_latest_that_is_no_name_is_reported_and_written_again(small, tmp_path, text):
    for step in (1, 2):
        path = checkpoints.save(tmp_path, small(step))
    (tmp_path / "latest").write_text(text)
    with pytest.warns(UserWarning, match=r"latest is corrupt.* resumes from step 2\.") as warned:
        assert checkpoints.load_latest(tmp_path, small(9)) == 2
    assert str(warned[0].message).isprintable()
    path.unlink()
    with pytest.warns(UserWarning, match="step-00000002.safetensors' is missing"):  # still missed
        assert checkpoints.load_latest(tmp_path, small(9)) == 1


@pytest.mark.parametrize("best", [3, 2, None])
def test_a_finished_run_keeps_its_last_checkpoint_and_the_best_one_without_a_second_copy(small, tmp_path, best):
    for step in (1, 2, 3):
        path = checkpoints.save(tmp_path, small(step), max_to_keep=3)
        if step == best:
            checkpoints.save_best_copy(path)
    content = (tmp_path / checkpoints.BEST).read_bytes() if best else None
    for _ in range(2):  # again, as after a kill
        checkpoints.keep_last(tmp_path)
        assert names(tmp_path) == ["step-00000003.safetensors"]
        assert (tmp_path / checkpoints.BEST).exists() == (best is not None)
        if best:
            assert (tmp_path / checkpoints.BEST).read_bytes() == content
            assert (tmp_path / checkpoints.BEST).samefile(path) == (best == 3)
    assert checkpoints.load_latest(tmp_path, small(9)) == 3
    assert not list(tmp_path.glob(".*partial*"))


def test_a_finished_run_whose_last_checkpoint_is_corrupt_keeps_the_others(small, tmp_path):
    for step in (1, 2):
        path = checkpoints.save(tmp_path, small(step), max_to_keep=2)
    flip(path)
    checkpoints.keep_last(tmp_path)
    assert len(names(tmp_path)) == 2


ARRAYS = {
    "model/b": np.array([1.5, -2.0], "float32"),
    "model/a": np.arange(6, dtype="int32").reshape(2, 3),
    "model/by column": np.asfortranarray(np.arange(6, dtype="float32").reshape(2, 3)),
    "seed": np.array(7, "uint32"),
    "reset_mask": np.array([True, False]),
}
MOST = 10**6


def raw(header, numbers=b""):
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def entry(shape, end, begin=0, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_what_is_read_is_what_was_written_and_others_can_read_it(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoints.write_arrays(path, ARRAYS, {"step": "7"})
    metadata, values = checkpoints.read_arrays(path, MOST)
    assert metadata["step"] == "7"
    for arrays in (values, load_file(path)):
        assert arrays.keys() == ARRAYS.keys()
        for name, expected in ARRAYS.items():
            assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(arrays[name], expected)
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_a_flipped_bit_of_any_byte_and_every_cut_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoints.write_arrays(path, {"a": np.array([1.5, 2.5], "float32")}, {"step": "7"})
    data = path.read_bytes()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(checkpoints.CorruptCheckpointError):
            checkpoints.read_arrays(path, MOST)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(checkpoints.CorruptCheckpointError):
            checkpoints.read_arrays(path, MOST)
    path.write_bytes(data + b"x")
    with pytest.raises(checkpoints.CorruptCheckpointError):
        checkpoints.read_arrays(path, MOST)


def test_a_file_without_a_checksum_is_refused(tmp_path):
    save_file(ARRAYS, tmp_path / "x.safetensors")
    with pytest.raises(checkpoints.CorruptCheckpointError, match="checksum"):
        checkpoints.read_arrays(tmp_path / "x.safetensors", MOST)


HARMFUL = {
    "longer than the file": raw({"a": entry([2**40], 2**42)}),
    "a product that overflows": raw({"a": entry([2**62, 2**62], 8)}, b"x" * 8),
    "negative": raw({"a": entry([-2], -8)}, b""),
    "a float": raw({"a": entry([2.0], 8)}, b"x" * 8),
    "a boolean": raw({"a": entry([True], 4)}, b"x" * 4),
    "many axes": raw({"a": entry([1] * 40, 4)}, b"x" * 4),
    "none and many": raw({"a": entry([0, 2**63], 0)}, b""),
    "overlap": raw({"a": entry([2], 8), "b": entry([2], 12, 4)}, b"x" * 12),
    "gap": raw({"a": entry([2], 12, 4)}, b"x" * 12),
    "another dtype": raw({"a": entry([1], 4, dtype="F4096")}, b"x" * 4),
    "a dtype of others": raw({"a": entry([1], 1, dtype="F8_E8M0")}, b"x"),
    "a list of dtypes": raw({"a": entry([1], 4, dtype=["F32"])}, b"x" * 4),
    "no entry": raw({"a": 3}),
    "no metadata": raw({"__metadata__": 3}),
    "no object": raw([1]),
    "deep": raw(b"[" * 100_000),
    "no text": raw(b"\xff\xfe"),
    "a header longer than the file": b"\xff" * 100,
    "larger than expected": raw({"a": entry([MOST], 4 * MOST)}, b"x" * 4 * MOST),
}


@pytest.mark.parametrize("data", HARMFUL.values(), ids=HARMFUL)
def test_a_file_that_means_harm_is_refused_before_anything_large_is_made(tmp_path, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(checkpoints.CorruptCheckpointError):
            checkpoints.read_arrays(path, MOST)
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST
    finally:
        tracemalloc.stop()


def test_a_zip_a_link_a_pipe_and_a_folder_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("x", b"\0" * 10**6)
    checkpoints.write_arrays(tmp_path / "good", ARRAYS, {})
    (tmp_path / "link").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("zip", "link", "pipe", "folder"):
        with pytest.raises(checkpoints.CorruptCheckpointError):
            checkpoints.read_arrays(tmp_path / name, MOST)


@given(st.binary(max_size=200), st.binary(max_size=40))
@settings(max_examples=50)
def test_any_bytes_are_read_or_refused(tmp_path_factory, header, numbers):
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    for data in (header, raw(header, numbers)):
        path.write_bytes(data)
        with pytest.raises(checkpoints.CorruptCheckpointError):
            checkpoints.read_arrays(path, MOST)
