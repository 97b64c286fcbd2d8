"""A weights file takes the memory of its bytes, whatever its datasets claim."""

import io

import h5py
import keras
import numpy as np
import pytest

from keras_seq.saving.keras_file import WeightsError, check_weights

MANY = 2**28  # numbers: 1 GiB of float32


def written(fill) -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file["layers/vars/0"] = np.ones((5, 3), "float32")
        fill(file)
    return memory.getvalue()


def compressed(file):
    file.create_dataset("x", data=np.zeros(2**20, "float32"), compression="gzip")


def never_written(file):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((MANY,)), plan)


def virtual(file):
    layout = h5py.VirtualLayout((MANY,), "float32")
    file.create_virtual_dataset("x", layout)


def loop(file):
    file["layers/again"] = file["layers"]


def strings(file):
    file.create_dataset("x", data=["a" * 100] * 10, dtype=h5py.string_dtype())


def rows_of_numbers(file):
    file.create_dataset("x", shape=(3,), dtype=np.dtype(("float32", (4,))))


def attribute(file):
    file["layers"].attrs["names"] = ["a" * 100] * 10


CLAIMS = {
    "sparse": (lambda file: file.create_dataset("x", shape=(MANY,), dtype="f4", chunks=(2**20,)), "contiguous"),
    "never written": (never_written, "contiguous"),
    "gzip": (compressed, "contiguous"),
    "in pieces": (lambda file: file.create_dataset("x", data=np.ones(8), chunks=(4,)), "contiguous"),
    "checksums": (lambda file: file.create_dataset("x", data=np.ones(8), fletcher32=True), "contiguous"),
    "in another file": (
        lambda file: file.create_dataset("x", (8,), "f4", external=[("/etc/passwd", 0, 32)]),
        "contiguous",
    ),
    "put together": (virtual, "contiguous"),
    "soft link": (lambda file: file.__setitem__("x", h5py.SoftLink("/layers/vars/0")), "SoftLink"),
    "external link": (lambda file: file.__setitem__("x", h5py.ExternalLink("other.h5", "/x")), "ExternalLink"),
    "two names": (lambda file: file.__setitem__("x", file["layers/vars/0"]), "another name"),
    "a loop": (loop, "another name"),
    "strings": (strings, "plain numbers"),
    "records": (lambda file: file.create_dataset("x", shape=(3,), dtype=[("a", "f4"), ("b", "f4")]), "plain numbers"),
    "rows": (rows_of_numbers, "plain numbers"),
    "references": (lambda file: file.create_dataset("x", data=file.ref, dtype=h5py.ref_dtype), "plain numbers"),
    "a type": (lambda file: file.__setitem__("x", np.dtype("f4")), "Datatype"),
    "attributes": (attribute, "attribute"),
}


@pytest.mark.parametrize(("fill", "word"), CLAIMS.values(), ids=CLAIMS)
def test_what_claims_more_than_it_holds_is_refused(fill, word):
    data = written(fill)
    assert len(data) < 100_000
    with pytest.raises(WeightsError, match=word):
        check_weights(data)


def test_datasets_that_share_their_bytes():
    def two(file):
        for name in "ab":
            file[name] = np.ones(2**16, "float32")

    data = written(two)
    check_weights(data)
    with h5py.File(io.BytesIO(data)) as file:
        first, second = (file[name].id.get_offset() for name in "ab")
    there, here, end = (offset.to_bytes(8, "little") for offset in (first, second, len(data)))
    assert data.count(here) == data.count(end) == 1  # in the second one's header, and at the beginning of the file
    shared = data.replace(here, there).replace(end, here)[:second]
    with h5py.File(io.BytesIO(shared)) as file:
        np.testing.assert_array_equal(file["a"], file["b"])
    with pytest.raises(WeightsError, match="claim 524348 bytes of numbers, the file has"):
        check_weights(shared)


@pytest.mark.parametrize("data", [b"", b"not HDF5" * 1000])
def test_no_hdf5_at_all(data):
    with pytest.raises(OSError, match="open"):
        check_weights(data)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "bool"])
def test_what_keras_writes_passes(tmp_path, dtype):
    class Odd(keras.layers.Layer):
        """Variables of odd shapes and types."""

        def build(self, shape):
            for i, size in enumerate([(2, 3), (0, 3), ()]):
                self.add_weight(shape=size, dtype=dtype, initializer="zeros", name=f"v{i}")

        def call(self, x):
            return x

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), Odd()])
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    check_weights(path.read_bytes())
