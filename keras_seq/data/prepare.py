"""Turn files of text into a folder of token ids: in parallel, with exact resume.

    files -> groups of about 128 MiB -> one shard each -> index

The ids depend on the files and the tokenizer only; `group_bytes` says how many a shard has. A killed run leaves whole
shards and temporary files; the next one writes what is missing, and the folder ends with the same bytes. The index is
written last, and nothing reads a folder without it. A tokenizer that has to be trained learns from

    characters               all of the texts, which are read once
    words, wordpiece, bpe    the first nine tenths of a sample, since the last tenth of the texts is for validation

The sample is the beginnings of up to some 64 parts of the files at equal distances.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import hashlib
import importlib.util
import json
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import connection
from pathlib import Path

import filelock
import numpy as np

from keras_seq import checks
from keras_seq.backends import num_cores
from keras_seq.data import token_shards
from keras_seq.data.documents import DocumentsError, InputFile, Part, divide, find_files, read_texts
from keras_seq.data.token_shards import PLAN_NAME, TOKENIZER_NAME, ShardWriter, file_sha256
from keras_seq.files import check_regular, remove_partial_files, write_json
from keras_seq.tokenizers import (
    TOKENIZERS,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    document_token,
    load_tokenizer,
)
from keras_seq.tokenizers.base import OOV_TOKEN
from keras_seq.tokenizers.registry import DOCUMENT_CHARACTER

PLAN_SCHEMA = 2
GROUP_BYTES = 1 << 27
MIN_PARALLEL_BYTES = 1 << 24  # starting processes takes seconds
MAX_SAMPLE_PARTS, TRAIN_FRACTION = 64, 0.9
NUM_CODE_POINTS = 0x110000


def prepare(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    tokenizer: str | Tokenizer = "characters",
    field: str = "text",
    processes: int | None = None,
    group_bytes: int = GROUP_BYTES,
    sample_characters: int = 1 << 26,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **tokenizer_options: int,
) -> dict:
    """Write the documents of files as a folder of token ids, or continue a run that was stopped."""
    _check_tokenizer(tokenizer, tokenizer_options)
    if processes is not None:
        checks.positive_integer("processes", processes)
    checks.positive_integer("group_bytes", group_bytes)
    checks.positive_integer("sample_characters", sample_characters)
    folder, files = Path(folder), find_files(inputs)
    kind = tokenizer if isinstance(tokenizer, str) else _digest(json.dumps(tokenizer.get_config()))
    plan = {
        "schema": PLAN_SCHEMA,
        "options": json.loads(json.dumps([kind, field, group_bytes, sample_characters, tokenizer_options])),
        "inputs": [list(dataclasses.astuple(file)) for file in files],
        "tokenizer_sha256": None,  # until it is written, and before any shard
    }
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / ".lock")
    try:
        with lock.acquire(blocking=False):
            remove_partial_files(folder)
            _check_plan(folder, plan)
            if not (folder / token_shards.INDEX_NAME).exists():
                groups = divide(files, group_bytes)

                def train(kind):
                    if kind != "characters":
                        texts = _training_texts(files, field, sample_characters, processes, progress)
                        return _train_tokenizer(kind, texts, files, **tokenizer_options)
                    collect = functools.partial(_distinct_characters, field=field)
                    characters = {*"".join(_map(collect, [(group,) for group in groups], groups, processes, progress))}
                    _check_text(characters, files)
                    return CharacterTokenizer("".join(sorted({*characters, DOCUMENT_CHARACTER})))

                writer = ShardWriter(folder, _tokenizer(folder, plan, tokenizer, train), field)
                missing = [(n, group) for n, group in enumerate(groups) if not writer.is_written(n)]
                _map(writer.write, missing, groups, processes, progress)
                _write_index(writer, len(groups))
            for path in folder.glob("[0-9]*.json"):  # records of shards, which the index holds
                path.unlink()
    except filelock.Timeout:
        message = "another process prepares this folder: wait until it has ended, or end it"
        raise BlockingIOError(errno.EWOULDBLOCK, message, str(folder)) from None
    (folder / ".lock").unlink(missing_ok=True)
    index = token_shards.read_index(folder)
    token_shards.index_shards(folder, index)  # checks the sizes
    return index


def _check_tokenizer(tokenizer, options):
    if isinstance(tokenizer, str):
        checks.one_of("tokenizer", tokenizer, TOKENIZERS)
    elif not isinstance(tokenizer, Tokenizer):
        raise ValueError(f"tokenizer={checks.short_repr(tokenizer)}; expected {', '.join(TOKENIZERS)} or a tokenizer.")
    for name, value in options.items() if tokenizer == "characters" or isinstance(tokenizer, Tokenizer) else ():
        kind = "characters, all of which are collected" if tokenizer == "characters" else "a tokenizer as it is"
        raise ValueError(f"{name}={value!r}; expected it with a tokenizer that is trained, not with {kind}.")


def _check_plan(folder, plan):
    """Raise a DocumentsError unless a folder is empty or of a run with the same plan; take over its tokenizer."""
    path = folder / PLAN_NAME
    if not path.exists():
        if others := sorted(path.name for path in folder.iterdir() if path.name not in (".lock", ".pid")):
            raise DocumentsError(f"{folder} has other files, such as {others[0]}: name a new folder.")
        return
    try:
        check_regular(path)
        written = json.loads(path.read_bytes())
        is_known, options = written["schema"] == PLAN_SCHEMA, written["options"]
        old, new = ({path: (size, modified) for path, size, modified in one["inputs"]} for one in (written, plan))
    except (OSError, RecursionError, ValueError, KeyError, TypeError):
        is_known = False
    if not is_known:
        raise DocumentsError(f"{path} is damaged or of another version: remove the folder.")
    if written.get("tokenizer_sha256", "") is None:
        return  # nothing was begun but the tokenizer
    if options != plan["options"]:
        raise DocumentsError(f"{folder} was begun with other options: use the same, or name a new folder.")
    for file in [*old, *new]:
        if old.get(file) != new.get(file):
            change = "is missing" if file not in new else "is new" if file not in old else "was changed"
            raise _changed(folder, file, change)
    if [*old] != [*new]:
        raise DocumentsError(f"{folder} was begun with the inputs in another order: name them as they were.")
    plan["tokenizer_sha256"] = written.get("tokenizer_sha256")


def _changed(folder, file, change="was changed"):
    return DocumentsError(f"{file} {change} since {folder} was begun: restore it, or prepare another folder.")


def _tokenizer(folder, plan, tokenizer, train):
    """Return the tokenizer, after writing it and its digest to the folder; the one there, if a run was stopped."""
    path, expected = folder / TOKENIZER_NAME, plan["tokenizer_sha256"]
    if expected is not None:
        if not path.exists() or file_sha256(path) != expected:
            raise _changed(folder, path)
        return load_tokenizer(path)
    write_json(folder / PLAN_NAME, plan)  # from now on the folder is this run's
    tokenizer = train(tokenizer) if isinstance(tokenizer, str) else tokenizer
    document_token(tokenizer)
    tokenizer.save(path)
    write_json(folder / PLAN_NAME, {**plan, "tokenizer_sha256": file_sha256(path)})
    return tokenizer


def _write_index(writer, num_shards):
    shards = [json.loads(writer.record_path(number).read_bytes()) for number in range(num_shards)]
    totals = {name: sum(shard[name] for shard in shards) for name in ("tokens", "documents", "characters", "unknown")}
    examples = dict.fromkeys(text for shard in shards for text in shard["unknown_examples"])
    token_shards.write_index(
        writer.folder,
        {
            "dtype": writer.dtype,
            "vocabulary_size": writer.tokenizer.vocabulary_size,
            "document_token": document_token(writer.tokenizer),
            "tokenizer_sha256": file_sha256(writer.folder / TOKENIZER_NAME),
            **totals,
            "unknown_examples": [*examples][: token_shards.MAX_EXAMPLES],
            "sha256": _digest("".join(shard["sha256"] for shard in shards)),
            "shards": shards,
        },
    )


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _map(function, calls, groups, processes, progress):
    """Call a function with each tuple of arguments, the last a group, here or in processes; return the results."""
    sizes = [sum(part.size for part in group) for *_, group in calls]
    total = sum(part.size for group in groups for part in group)
    done = total - sum(sizes)
    progress(done, total)
    if processes is None:
        processes = 1 if total - done < MIN_PARALLEL_BYTES else num_cores()
    processes, results = min(processes, len(calls)), [None] * len(calls)
    if processes <= 1:
        for number, call in enumerate(calls):
            results[number] = function(*call)
            progress(done := done + sizes[number], total)
        return results
    with _pool(processes) as pool:
        try:
            with _uninterrupted():
                futures = {pool.submit(function, *call): number for number, call in enumerate(calls)}
            for future in concurrent.futures.as_completed(futures):
                results[futures[future]] = future.result()
                progress(done := done + sizes[futures[future]], total)
        except concurrent.futures.BrokenExecutor:
            raise DocumentsError("A process was killed, perhaps for its memory: use fewer --processes.") from None
        finally:
            pool.shutdown(cancel_futures=True)
    return results


@contextlib.contextmanager
def _pool(processes):
    """Yield a pool of processes; they need no backend, and load Keras's NumPy backend where SciPy is installed."""
    environment = {"TOKENIZERS_PARALLELISM": "false"}
    if importlib.util.find_spec("scipy"):
        environment["KERAS_BACKEND"] = "numpy"
    old = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(processes, context, _end_with_parent) as pool:
            yield pool
    finally:
        for name, value in old.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _uninterrupted():
    """Keep Ctrl-C waiting in this thread, and in processes that it starts until they have begun; not on Windows."""
    if os.name != "posix":
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_with_parent():
    """Let this process end when its parent does, and at Ctrl-C, without a traceback."""

    def wait():
        connection.wait([multiprocessing.parent_process().sentinel])
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=wait, daemon=True).start()


def _distinct_characters(group: Sequence[Part], field: str) -> str:
    """Return the characters of a group of parts, each once."""
    occurs = np.zeros(NUM_CODE_POINTS, bool)
    for part in group:
        for _, text in read_texts(part, field):
            occurs[np.frombuffer(text.encode("utf-32-le"), "<u4")] = True
    return "".join(map(chr, np.flatnonzero(occurs)))


def _num_characters(group: Sequence[Part], field: str) -> int:
    return sum(len(text) for part in group for _, text in read_texts(part, field))


def _check_text(texts: Iterable[str], files: Sequence[InputFile]) -> None:
    if not any(texts):
        raise DocumentsError(f"{files[0].path}: the documents have no text to train a tokenizer on.")


def _train_tokenizer(kind, texts, files, **options):
    """Train a tokenizer that has a token for the beginning of a document."""
    _check_text(map(str.strip, texts), files)
    if kind != "words":
        return TOKENIZERS[kind].from_texts(texts, **options)
    if "vocabulary_size" in options:
        reason = f"for {OOV_TOKEN}, the token of a document's beginning and one word"
        checks.integer("vocabulary_size", options["vocabulary_size"], min_value=3, reason=reason)
        options["vocabulary_size"] -= 1
    tokenizer = WordTokenizer.from_texts([text.replace(DOCUMENT_CHARACTER, "") for text in texts], **options)
    return WordTokenizer([OOV_TOKEN, DOCUMENT_CHARACTER, *tokenizer.vocabulary[1:]])


def _training_texts(files, field, sample_characters, processes, progress):
    """Return the first nine tenths of a sample of documents, cut behind a word or between two.

    Each group has its share of the sample, so nine tenths of the sample lie in nine tenths of the texts.
    """
    groups = divide(files, max(1, sum(file.size for file in files) // MAX_SAMPLE_PARTS))
    texts, continues = [], False
    count = functools.partial(_num_characters, field=field)
    sizes = _map(count, [(group,) for group in groups], groups, processes, progress)
    for group, size in zip(groups, sizes, strict=True):
        sample, is_whole = _sample(group, field, max(1, sample_characters * size // max(1, sum(sizes))))
        for begins, text in sample:
            if begins or not continues:
                texts.append([])
            texts[-1].append(text)
            continues = True
        continues = continues and is_whole
    documents = ["".join(parts) for parts in texts]
    left = max(1, int(sum(map(len, documents)) * TRAIN_FRACTION))
    for number, text in enumerate(documents):
        if left <= len(text):
            return [*documents[:number], _first(text, left)]
        left -= len(text)
    return documents


def _sample(group, field, count):
    """Return the first characters of a group, as `read_texts` yields them, and whether the group has no more."""
    sample = []
    for part in group:
        for begins, text in read_texts(part, field):
            if count <= 0:
                return sample, False
            sample.append((begins, _first(text, count)))
            count -= len(text)
    return sample, count >= 0


def _first(text, count):
    """Return the first characters of a text, and more to the end of the word that they end in."""
    end = re.compile(r"\b").search(text, count)
    return text[: end.start() if end else len(text)]
