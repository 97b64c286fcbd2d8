import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from keras_seq.training import checksummed_safetensors

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
    checksummed_safetensors.write(path, ARRAYS, {"step": "7"})
    metadata, values = checksummed_safetensors.read(path, MOST)
    assert metadata["step"] == "7"
    for arrays in (values, load_file(path)):
        assert arrays.keys() == ARRAYS.keys()
        for name, expected in ARRAYS.items():
            assert (arrays[name].dtype, arrays[name].shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(arrays[name], expected)
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_every_flipped_bit_and_every_cut_is_noticed(tmp_path):
    path = tmp_path / "x.safetensors"
    checksummed_safetensors.write(path, {"a": np.array([1.5, 2.5], "float32")}, {"step": "7"})
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(checksummed_safetensors.CorruptFileError):
            checksummed_safetensors.read(path, MOST)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(checksummed_safetensors.CorruptFileError):
            checksummed_safetensors.read(path, MOST)
    path.write_bytes(data + b"x")
    with pytest.raises(checksummed_safetensors.CorruptFileError):
        checksummed_safetensors.read(path, MOST)


def test_a_file_without_a_checksum_is_refused(tmp_path):
    save_file(ARRAYS, tmp_path / "x.safetensors")
    with pytest.raises(checksummed_safetensors.CorruptFileError, match="checksum"):
        checksummed_safetensors.read(tmp_path / "x.safetensors", MOST)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (raw({"a": entry([2**40], 2**42)}), "length"),
        (raw({"a": entry([2**62, 2**62], 8)}, b"x" * 8), "sizes"),
        (raw({"a": entry([-2], -8)}, b""), "sizes"),
        (raw({"a": entry([2.0], 8)}, b"x" * 8), "sizes"),
        (raw({"a": entry([True], 4)}, b"x" * 4), "sizes"),
        (raw({"a": entry([1] * 40, 4)}, b"x" * 4), "sizes"),
        (raw({"a": entry([2], 8), "b": entry([2], 12, 4)}, b"x" * 12), "overlap"),
        (raw({"a": entry([2], 12, 4)}, b"x" * 12), "gaps"),
        (raw({"a": entry([1], 4, dtype="F4096")}, b"x" * 4), "not a safetensors header"),
        (raw({"a": entry([1], 4, dtype=["F32"])}, b"x" * 4), "not a safetensors header"),
        (raw({"a": 3}), "not a safetensors header"),
        (raw({"__metadata__": 3}), "metadata"),
        (raw([1]), "not a JSON object"),
        (raw(b"[" * 100_000), "not JSON"),
        (raw(b"\xff\xfe"), "not JSON"),
        (b"\xff" * 100, "longer than the file"),
        (raw({"a": entry([MOST], 4 * MOST)}, b"x" * 4 * MOST), "expected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_means_harm_is_refused_before_anything_large_is_made(tmp_path, data, why):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(checksummed_safetensors.CorruptFileError, match=why):
            checksummed_safetensors.read(path, MOST)
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST
    finally:
        tracemalloc.stop()


def test_a_zip_a_link_a_pipe_and_a_folder_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("x", b"\0" * 10**6)
    checksummed_safetensors.write(tmp_path / "good", ARRAYS, {})
    (tmp_path / "link").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("zip", "link", "pipe", "folder"):
        with pytest.raises(checksummed_safetensors.CorruptFileError):
            checksummed_safetensors.read(tmp_path / name, MOST)


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(tmp_path_factory, header, numbers):
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    for data in (header, raw(header, numbers)):
        path.write_bytes(data)
        with pytest.raises(checksummed_safetensors.CorruptFileError):
            checksummed_safetensors.read(path, MOST)
