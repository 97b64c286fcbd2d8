"""A `.keras` file is read as if an enemy had made it: what is refused makes no weight and touches nothing outside."""

import functools
import io
import json
import os
import resource
import zipfile

import h5py
import keras
import numpy as np
import pytest

from keras_seq.models import Ensemble, LSTMConfig, RWKV7Config, TransformerConfig
from keras_seq.saving import save_model
from keras_seq.saving.keras_file import UntrustedModelError, check_weights, load_untrusted_model

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
MANY = 2**28  # numbers: 1 GiB of float32


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The members of the file of a tiny model."""
    path = tmp_path_factory.mktemp("archive") / "model.keras"
    save_model(LSTMConfig(3, 4).build_model(5), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def packed(honest, tmp_path):
    """Writes a file with other members: bytes, or None to leave one out."""

    def packed(compression=zipfile.ZIP_STORED, **members):
        path = tmp_path / "model.keras"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, value in {**honest, **members}.items():
                if value is not None:
                    archive.writestr(name, value)
        return path

    return packed


@pytest.fixture
def changed(honest, packed):
    """Writes a file whose config was changed by a function."""

    def changed(change):
        config = json.loads(honest[CONFIG])
        return packed(**{CONFIG: json.dumps(change(config) or config).encode()})

    return changed


@pytest.fixture
def refuses(tmp_path):
    """Asserts that a file is refused with one sentence, that little memory is asked for, and nothing is written."""

    def refuses(path, word=""):
        before = sorted(path.parent.rglob("*"))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(UntrustedModelError) as refused:
            load_untrusted_model(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000  # KiB
        assert sorted(path.parent.rglob("*")) == before
        said = str(refused.value)
        assert str(path) in said
        assert said.endswith(".")
        assert "\n" not in said
        assert word in said, said

    return refuses


def layer(config, name):
    """The config of the layer of a language model whose name begins so."""
    parts = config["config"]
    found = [parts["embedding"], *parts["blocks"], parts["head"]]
    return next(part["config"] for part in found if part["config"]["name"].startswith(name))


def test_what_was_saved_comes_back(tmp_path, randomize):
    models = [
        LSTMConfig(3, 4, dropout=0.1).build_model(5),
        TransformerConfig(4, 1, 2, 8, context_length=6).build_model(5),
    ]
    models.append(Ensemble([LSTMConfig(3, 4).build_model(5), LSTMConfig(3, 4).build_model(5)]))
    for model in map(randomize, models):
        save_model(model, tmp_path / "model.keras")
        ids = np.array([[1, 2, 3]])
        np.testing.assert_array_equal(load_untrusted_model(tmp_path / "model.keras")(ids), model(ids))


@pytest.mark.parametrize(
    "name",
    ["../evil", "/tmp/evil", "assets/../../evil", "assets/.hidden", "assets\\..\\evil", "run.py", "assets//x", "a\nb"],
)
def test_names_that_lead_elsewhere(packed, refuses, name):
    refuses(packed(**{name: b"x"}), "member")


def test_a_zip_bomb_is_not_unpacked(packed, refuses, tmp_path):
    zeros = b"\0" * 10_000_000
    refuses(packed(zipfile.ZIP_DEFLATED, **{"assets/zeros": zeros}), "compressed")
    refuses(packed(zipfile.ZIP_DEFLATED, **{CONFIG: b" " * 10_000_000}), "compressed")
    refuses(packed(**{CONFIG: b" " * (1 << 24) + b"{}"}), "at most")


def test_members_that_share_their_bytes(packed, refuses):
    path = packed(**{"assets/a": b"\0" * 1000})
    data = path.read_bytes()
    with zipfile.ZipFile(path, "a") as archive:
        found = archive.getinfo("assets/a")
        for number in range(200):
            copy = zipfile.ZipInfo(f"assets/b{number}")
            copy.header_offset, copy.file_size, copy.compress_size = found.header_offset, 1000, 1000
            copy.CRC = found.CRC
            archive.filelist.append(copy)
            archive.NameToInfo[copy.filename] = copy
        archive._didModify = True
    assert path.stat().st_size < len(data) + 20_000
    refuses(path, "bytes")


def everywhere(config, old, new):
    """The config with one size changed wherever it stands, so that all layers fit together."""
    if isinstance(config, dict):
        return {key: everywhere(value, old, new) for key, value in config.items()}
    if isinstance(config, list):
        return [everywhere(value, old, new) for value in config]
    return new if config == old and not isinstance(config, bool) else config


def test_more_layers_than_the_weights_have(tmp_path, refuses):
    """A config says their number, each is a few objects, and nothing was compared when they are made."""
    save_model(RWKV7Config(8, num_layers=1).build_model(5), tmp_path / "honest.keras")
    load_untrusted_model(tmp_path / "honest.keras")
    with zipfile.ZipFile(tmp_path / "honest.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert members[CONFIG].count(b'"num_layers": 1') == 1
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name, value in members.items():
            archive.writestr(name, value.replace(b'"num_layers": 1', b'"num_layers": 2147483647'))
    refuses(tmp_path / "model.keras", "2147483647 layers")


@pytest.mark.parametrize("size", [3, 4, 5], ids=["embedding", "units", "vocabulary"])
@pytest.mark.parametrize("to", [50_000, 2**30, 2**40])
def test_shapes_that_the_weights_do_not_have(changed, refuses, size, to):
    refuses(changed(lambda config: everywhere(config, size, to)), "bytes of weights" if to == 50_000 else "")


def test_shapes_that_do_not_fit_together(changed, refuses):
    def change(config):
        layer(config, "lstm")["units"] = 50_000

    refuses(changed(change))


def test_a_huge_context(changed, refuses):
    def change(config):
        config["config"]["context_length"] = 2**30

    refuses(changed(change), "context_length")


LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {
        "name": "lambda",
        "function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None, "closure": None}},
    },
    "registered_name": None,
}
FOREIGN = {
    "a lambda": LAMBDA,
    "a saved model": {"module": "keras.layers", "class_name": "TFSMLayer", "config": {"filepath": "/tmp/x"}},
    "a file": {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
    "a download": {"module": "keras.utils", "class_name": "get_file", "config": {"fname": "x", "origin": "http://x"}},
    "a function": {"module": "builtins", "class_name": "function", "config": "eval", "registered_name": "function"},
    "a module": {"module": "os", "class_name": "system", "config": {"command": "true"}, "registered_name": "system"},
    "a stranger": {"module": "evil", "class_name": "X", "config": {}, "registered_name": "keras_seq>Evil"},
    "an array": {"class_name": "__numpy__", "config": {"value": [1], "dtype": "float32"}},
}


@pytest.mark.parametrize("part", FOREIGN.values(), ids=FOREIGN)
def test_only_parts_of_our_models_are_made(changed, refuses, part, tmp_path, monkeypatch):
    def inside(config):
        config["config"]["blocks"].append(part)

    def as_argument(config):
        layer(config, "lstm")["kernel_initializer"] = part

    for change in (inside, as_argument, lambda config: part):
        refuses(changed(change), "config names")


BROKEN = {
    "no config": {CONFIG: None},
    "no weights": {WEIGHTS: None},
    "no JSON": {CONFIG: b"{"},
    "no object": {CONFIG: b"[1]"},
    "not UTF-8": {CONFIG: b"\xff\xfe\xfd"},
    "a number": {CONFIG: b"1" * 5000},
    "deep": {CONFIG: b"[" * 100_000},
    "NaN": {CONFIG: b'{"class_name": NaN}'},
}


@pytest.mark.parametrize("members", BROKEN.values(), ids=BROKEN)
def test_a_torn_or_foreign_file(packed, refuses, members):
    refuses(packed(**members))


def test_a_config_of_another_shape(changed, refuses):
    refuses(changed(lambda config: {**config, "config": 7}))
    refuses(
        changed(lambda config: {"class_name": "x", "config": functools.reduce(lambda c, _: [c], range(900), config)})
    )
    refuses(changed(lambda config: {**config, "config": {**config["config"], "blocks": 7}}))


def test_weights_that_are_none_or_linked(packed, refuses, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret" * 100)
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        group = file.create_group("layers/embedding/vars")
        group.create_dataset("0", shape=(5, 3), dtype="f4", external=[(str(tmp_path / "secret"), 0, 60)])
    size = len(zipfile.ZipFile(packed()).read(WEIGHTS))
    for content in (b"", b"not HDF5" * 1000, memory.getvalue() + b"\0" * size):
        refuses(packed(**{"model.weights.h5": content}))


@pytest.mark.parametrize("stored", [{"chunks": (2**20,)}, {"chunks": (2**20,), "compression": "gzip"}])
def test_weights_that_claim_more_than_they_hold(honest, packed, refuses, stored):
    memory = io.BytesIO(honest[WEIGHTS])
    with h5py.File(memory, "r+") as file:
        del file["embedding/vars/0"]
        file.create_dataset("embedding/vars/0", shape=(2**29,), dtype="f4", **stored)[:5] = 1  # 2 GiB
    path = packed(**{"model.weights.h5": memory.getvalue()})
    assert path.stat().st_size < 5_000_000
    refuses(path, "'/embedding/vars/0' is compressed, sparse or elsewhere")


def test_no_file_at_all(refuses, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no zip")
    os.mkfifo(tmp_path / "pipe")
    for name, word in (("none", "No such"), ("folder", "directory"), ("text", "zip"), ("pipe", "regular")):
        refuses(tmp_path / name, word)


def test_what_is_refused_leaves_nothing_behind_in_keras(changed):
    """Keras makes every variable that it remembers as unfinished at the end of the next stateless scope."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UntrustedModelError):
        load_untrusted_model(changed(lambda config: everywhere(config, 4, 50_000)))
    with keras.StatelessScope():
        pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000  # KiB


def written(fill) -> bytes:
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file["layers/vars/0"] = np.ones((5, 3), "float32")
        fill(file)
    return memory.getvalue()


def never_written(file):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((MANY,)), plan)


def dataset(**options):
    """What adds a dataset to a file."""
    return lambda file: file.create_dataset("x", **options)


def entry(value):
    """What adds something else; a function of the file makes it."""
    return lambda file: file.__setitem__("x", value(file))


CLAIMS = {
    "sparse": (dataset(shape=(MANY,), dtype="f4", chunks=(2**20,)), "contiguous"),
    "never written": (never_written, "contiguous"),
    "gzip": (dataset(data=np.zeros(2**20, "float32"), compression="gzip"), "contiguous"),
    "in pieces": (dataset(data=np.ones(8), chunks=(4,)), "contiguous"),
    "checksums": (dataset(data=np.ones(8), fletcher32=True), "contiguous"),
    "in another file": (dataset(shape=(8,), dtype="f4", external=[("/etc/passwd", 0, 32)]), "contiguous"),
    "put together": (
        lambda file: file.create_virtual_dataset("x", h5py.VirtualLayout((MANY,), "float32")),
        "contiguous",
    ),
    "soft link": (entry(lambda file: h5py.SoftLink("/layers/vars/0")), "SoftLink"),
    "external link": (entry(lambda file: h5py.ExternalLink("other.h5", "/x")), "ExternalLink"),
    "two names": (entry(lambda file: file["layers/vars/0"]), "another name"),
    "a loop": (lambda file: file.__setitem__("layers/again", file["layers"]), "another name"),
    "strings": (dataset(data=["a" * 100] * 10, dtype=h5py.string_dtype()), "plain numbers"),
    "records": (dataset(shape=(3,), dtype=[("a", "f4"), ("b", "f4")]), "plain numbers"),
    "rows": (dataset(shape=(3,), dtype=np.dtype(("float32", (4,)))), "plain numbers"),
    "references": (lambda file: file.create_dataset("x", data=file.ref, dtype=h5py.ref_dtype), "plain numbers"),
    "a type": (entry(lambda file: np.dtype("f4")), "Datatype"),
    "attributes": (lambda file: file["layers"].attrs.__setitem__("names", ["a" * 100] * 10), "attribute"),
}


@pytest.mark.parametrize(("fill", "word"), CLAIMS.values(), ids=CLAIMS)
def test_what_claims_more_than_it_holds_is_refused(fill, word):
    data = written(fill)
    assert len(data) < 100_000
    with pytest.raises(UntrustedModelError, match=word):
        check_weights(data)


def test_datasets_that_share_their_bytes_are_refused():
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
    with pytest.raises(UntrustedModelError, match="claim 524348 bytes of numbers, the file has"):
        check_weights(shared)


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
