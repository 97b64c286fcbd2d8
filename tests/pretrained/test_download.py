"""Folders by name: a pinned commit, offline unless said, and no pickles."""

import sys
import types

import pytest

from keras_seq.pretrained import PretrainedError, download

COMMIT = "93efa2f097d58c2a74874c7e644dbc9b0cee75a2"


@pytest.fixture
def calls(monkeypatch):
    """Stands in for the hub, and records what it is asked for."""
    calls = []

    def snapshot_download(name, **options):
        calls.append((name, options))
        if name == "nobody/nothing":
            raise OSError("404\n  Not found.")
        return "/cache/snapshot"

    monkeypatch.setitem(sys.modules, "huggingface_hub", types.SimpleNamespace(snapshot_download=snapshot_download))
    return calls


def test_only_a_commit_is_fetched_and_only_if_that_is_said(calls):
    for online in (False, True):
        assert str(download("a/b", COMMIT, online=online)) == "/cache/snapshot"
        name, options = calls[-1]
        assert (name, options["revision"], options["local_files_only"]) == ("a/b", COMMIT, not online)
        assert not [pattern for pattern in options["allow_patterns"] if pattern.endswith((".bin", ".py", ".pt", "*"))]
    for revision in ("main", None, COMMIT[:-1], COMMIT.upper()):
        with pytest.raises(PretrainedError, match="expected a commit of a/b, 40 hexadecimal digits: `git ls-remote"):
            download("a/b", revision)
    with pytest.raises(
        PretrainedError, match=r"`git ls-remote https://huggingface\.co/gpt2 HEAD` prints the latest\.$"
    ):
        download("gpt2")
    assert len(calls) == 2


def test_failures_are_one_sentence(calls, monkeypatch):
    with pytest.raises(PretrainedError, match=r"cannot be had \(404 Not found\); pass online=True to fetch it once\.$"):
        download("nobody/nothing", COMMIT)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PretrainedError, match="huggingface_hub is not installed"):
        download("a/b", COMMIT)
