"""Ids on disk are the same ids: in rows, windows, mixtures and packed documents, across the borders of files."""

import itertools
import json
import os

import numpy as np
import pytest

from keras_seq.data import (
    MixedWindows,
    PackedDocuments,
    RandomWindows,
    SequentialWindows,
    ShuffledWindows,
    StatefulWindows,
    TokenFiles,
    TokenFilesError,
    token_shards,
)
from keras_seq.data.prepare import prepare
from keras_seq.data.token_files import concatenated

BORDER = 7


@pytest.fixture(scope="module")
def ids():
    """Documents that begin with BORDER, of 1 to 30 ids."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 31, size=60)
    parts = [np.concatenate([[BORDER], random.integers(8, 90, size=length - 1)]) for length in lengths]
    return np.concatenate(parts).astype("uint16")


@pytest.fixture(scope="module")
def folder(ids, tmp_path_factory):
    """The ids in five files, one of them with a header, one of a single id."""
    folder = tmp_path_factory.mktemp("bins")
    borders = [0, 300, 301, 555, 800, len(ids)]
    for number, (start, stop) in enumerate(itertools.pairwise(borders)):
        header = np.zeros(256, "<i4")
        header[:3] = 20240520, 1, stop - start
        prefix = header.tobytes() if number == 2 else b""
        (folder / f"{number}.bin").write_bytes(prefix + ids[start:stop].tobytes())
    return folder


@pytest.fixture
def files(folder):
    """The files, opened."""
    return TokenFiles.open(folder, document_token=BORDER, vocabulary_size=90)


def test_files_are_a_sequence_of_ids(files, ids):
    assert len(files) == len(ids)
    assert np.array_equal(np.asarray(files), ids)
    assert np.array_equal(files[290:600], ids[290:600])
    assert files[-1] == ids[-1]
    assert len(files[5:2]) == 0
    part = files.part(200, 900)
    assert len(part) == 700
    assert np.array_equal(part[10:], ids[210:900])
    with pytest.raises(IndexError):
        files[len(ids)]


@pytest.mark.parametrize("kind", [RandomWindows, SequentialWindows, StatefulWindows, ShuffledWindows])
def test_windows_on_disk_are_those_in_memory(kind, files, ids):
    on_disk, in_memory = kind(files, 3, 17), kind(ids, 3, 17)
    for step in (0, 1, 5, 1000):
        for x, expected in zip(on_disk.batch(step), in_memory.batch(step), strict=True):
            assert x.dtype == np.int32
            assert np.array_equal(x, expected)


def test_a_mixture_draws_rows_from_its_sources_by_their_weights(files):
    sources = tuple(RandomWindows(np.full(99, number), 8, 4, seed=1) for number in range(3))
    mixed = MixedWindows(sources, (3.0, 0.0, 1.0), seed=5)
    rows = np.concatenate([mixed.batch(step)[0][:, 0] for step in range(500)])
    assert np.bincount(rows, minlength=3)[1] == 0
    assert abs((rows == 0).mean() - 0.75) < 0.03
    assert np.array_equal(mixed.batch(3)[1], MixedWindows(sources, (0.75, 0.0, 0.25), seed=5).batch(3)[1])
    assert mixed.tokens_per_step == 32
    for wrong in (((), ()), (sources, (1, 2)), (sources, (0, 0, 0)), (sources, (1, 1, -1))):
        with pytest.raises(ValueError, match="expected"):
            MixedWindows(*wrong)
    with pytest.raises(ValueError, match="one batch_size"):
        MixedWindows((sources[0], RandomWindows(files, 2, 4)), (1, 1))


def test_packing_has_each_token_once_in_an_epoch(files, ids):
    packed = PackedDocuments(files, 2, 16, seed=3)
    starts = np.flatnonzero(ids == BORDER)
    documents = {tuple(part) for part in np.split(ids, starts[1:])}
    streams = []
    for epoch in (0, 1):
        batches = [packed.batch(epoch * packed.steps_per_epoch + n) for n in range(packed.steps_per_epoch)]
        for x, y in batches:
            assert np.array_equal(x[:, 1:], y[:, :-1])
        stream = np.concatenate([x.ravel() for x, _ in batches])
        streams.append(stream)
        *whole, _ = np.split(stream, np.flatnonzero(stream == BORDER)[1:])
        assert {tuple(part) for part in whole} <= documents
        assert len(stream) > len(ids) - 1 - 32
        counts = np.bincount(ids, minlength=90) - np.bincount(stream, minlength=90)
        assert counts.min() >= 0
        assert counts.sum() == len(ids) - len(stream)
    assert not np.array_equal(*streams)
    with pytest.raises(ValueError, match="begin with a document"):
        PackedDocuments(files.part(3, 500), 2, 16)


def test_split_by_documents_and_by_tokens(files, ids):
    train, validation = files.split(0.8)
    assert len(train) + len(validation) == len(ids)
    assert validation[0] == BORDER
    assert len(train) >= 0.8 * len(ids)
    assert not (ids[int(0.8 * len(ids)) : len(train)] == BORDER).any()
    assert len(files.split(0.5, by="tokens")[0]) == len(ids) // 2
    again, rest = train.split(0.5)
    assert np.array_equal(np.concatenate([again, rest]), ids[: len(train)])
    assert np.array_equal(validation.document_starts(), np.flatnonzero(np.asarray(validation) == BORDER))
    with pytest.raises(ValueError, match="No document begins"):
        files.part(0, 2).split(0.5)
    with pytest.raises(ValueError, match="train_fraction"):
        files.split(1.5)


def test_folders_are_concatenated(files, ids):
    assert np.array_equal(np.asarray(concatenated([files, files])), np.tile(ids, 2))
    with pytest.raises(ValueError, match="whole files"):
        concatenated([files.part(0, 9), files])
    with pytest.raises(ValueError, match="same tokenizer"):
        concatenated([files, TokenFiles(files.shards, document_token=3)])


@pytest.mark.parametrize(
    ("starts", "length"),
    [([699], 2), ([-1], 2), ([[0], [700]], 1), ([0, -300], 9), ([2**62], 2), ([1.5], 2), ([0], -1)],
)
def test_rows_outside_are_refused_in_parts_too(files, starts, length):
    for sequence in (files.part(100, 800), TokenFiles(files.part(0, 1).shards[:1]).part(0, 30)):
        with pytest.raises(ValueError, match=r"^(Ids from -?\d+ to|starts=|length=).*expected"):
            sequence.rows(starts, length)
    assert files.part(100, 800).rows([[698], [0]], 2).shape == (2, 1, 2)


def header(*fields):
    values = np.zeros(256, "<i4")
    values[: len(fields)] = fields
    return values.tobytes()


def test_a_header_of_another_format_is_not_ids(tmp_path):
    path, ids = tmp_path / "a.bin", bytes(range(200))
    for fields in [(20240521, 1, 100), (20240522, 1, 7, 9), (20240520, 2, 100), (20240801, 1, 50), (1, 1, 100), (7,)]:
        path.write_bytes(header(*fields) + ids)
        with pytest.raises(TokenFilesError, match=rf"a\.bin has a header with the magic number {fields[0]} in version"):
            TokenFiles.open(path)
    path.write_bytes(header(20240801, 7, 50) + ids)
    assert len(TokenFiles.open(path)) == 50
    for data in (ids * 9, bytes(4096)):  # nanoGPT's
        path.write_bytes(data)
        assert len(TokenFiles.open(path)) == len(data) // 2


@pytest.fixture
def prepared(tmp_path):
    """A function that rewrites the index of a prepared folder, with its checksum, and returns the folder."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("to be", "or not", "to")))
    prepare(tmp_path / "a.jsonl", tmp_path / "out")
    index = token_shards.read_index(tmp_path / "out")

    def rewrite(drop=None, shard=None, **values):
        changed = {**index, **values, "shards": [{**index["shards"][0], **(shard or {})}]} | values
        changed = {name: value for name, value in changed.items() if name not in ("schema", drop)}
        token_shards.write_index(tmp_path / "out", changed)
        return tmp_path / "out"

    return rewrite


@pytest.mark.parametrize(
    ("match", "change"),
    [
        *((f"{name}=None", {"drop": name}) for name in ("dtype", "vocabulary_size", "document_token", "sha256")),
        ("dtype='uint64'", {"dtype": "uint64"}),
        ("dtype=\\['uint16'\\]", {"dtype": ["uint16"]}),
        ("vocabulary_size='9'", {"vocabulary_size": "9"}),
        ("document_token=-1", {"document_token": -1}),
        *(("name=None", {"shards": shards}) for shards in (None, [], {}, [3])),
        ("tokens=True", {"shard": {"tokens": True}}),
        ("tokens=1.5", {"shard": {"tokens": 1.5}}),
        ("name='../a'", {"shard": {"name": "../a"}}),
        ("sha256=3", {"shard": {"sha256": 3}}),
    ],
)
def test_an_index_without_what_is_read_is_damaged(prepared, match, change):
    folder = prepared(**change)
    with pytest.raises(TokenFilesError, match=rf"index\.json is damaged: {match}"):
        TokenFiles.open(folder)


@pytest.mark.parametrize("data", ["[" * 100_000, '{"a":' * 100_000, "7", "null", "", '"\\ud800"'])
def test_an_index_that_is_none_is_damaged(prepared, data):
    folder = prepared()
    (folder / "index.json").write_text(data)
    with pytest.raises(TokenFilesError, match=r"index\.json is damaged"):
        TokenFiles.open(folder)


@pytest.mark.parametrize("starts", [[6, 0, 13], [0, 6, 6], [0, 6, 99], [0, 6, 2**63], [13, 6, 0]])
def test_documents_out_of_order_are_damage(prepared, starts):
    folder = prepared()
    (folder / "00000.documents").write_bytes(np.array(starts, "<u8").tobytes())
    files = TokenFiles.open(folder)
    for read in (files.document_starts, files.split, lambda: PackedDocuments(files, 1, 2)):
        with pytest.raises(TokenFilesError, match=r"00000\.documents is damaged: expected positions in ascending"):
            read()


def test_damage_is_named(folder, files, tmp_path):
    with pytest.raises(TokenFilesError, match=r"2\.bin is damaged or of another vocabulary: it has the id"):
        TokenFiles.open(folder / "2.bin", vocabulary_size=40)[:]
    data = (folder / "2.bin").read_bytes()
    (tmp_path / "short.bin").write_bytes(data[:-2])
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "empty.bin").write_bytes(b"")
    for name in ("short", "odd", "empty", "missing"):
        with pytest.raises(TokenFilesError, match=f"{name}.bin"):
            TokenFiles.open(tmp_path / f"{name}.bin")
    (tmp_path / "2.bin").write_bytes(data)
    shrinking = TokenFiles.open(tmp_path / "2.bin")
    os.truncate(tmp_path / "2.bin", 1100)
    with pytest.raises(TokenFilesError, match="shorter than it was"):
        RandomWindows(shrinking, 8, 200).batch(0)
    (tmp_path / "gone.bin").write_bytes(data)
    gone = TokenFiles.open(tmp_path / "gone.bin")
    (tmp_path / "gone.bin").unlink()
    with pytest.raises(TokenFilesError, match=r"gone\.bin can no longer be read"):
        gone[0]
    with pytest.raises(TokenFilesError, match="no ids"):
        TokenFiles([])


def test_four_gigabytes_need_no_memory_and_no_time(tmp_path):
    for number in range(4):
        with open(tmp_path / f"{number}.bin", "wb") as file:
            file.truncate(1 << 30)  # a file with holes, which takes no disk
    statm = "/proc/self/statm"
    if not os.path.exists(statm):
        pytest.skip("/proc is Linux's")

    def memory():
        with open(statm, encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = memory()
    windows = RandomWindows(TokenFiles.open(tmp_path, vocabulary_size=9), 64, 256)
    for step in range(50):
        x, _ = windows.batch(step)
        assert x.shape == (64, 256)
        assert not x.any()
    assert windows.num_ids == 1 << 31
    assert memory() - before < 100 << 20
