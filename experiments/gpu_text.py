"""A text as nanoGPT reads it: the first 90 % of the characters to train on, the rest to validate on.

    ids = the places of the characters in the sorted list of all that occur in the whole text

It is what `keras_seq.text` gives by `load_corpus`, `split` and `Vocabulary`, which need TensorFlow.
"""

import hashlib
import os
import pathlib

import numpy as np

SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def read(corpus: str) -> str:
    """The text of `"shakespeare"` (of the folder KERAS_SEQ_DATA), of `"pydoc"` (this Python's help) or of a path.

    Raises:
        ValueError: there is no such text, or it is not UTF-8, or not the Shakespeare that is compared on.
    """
    if corpus == "pydoc":
        from pydoc_data.topics import topics

        return "\n".join(topics[name] for name in sorted(topics)).replace("\r\n", "\n")
    path = pathlib.Path(corpus)
    if corpus == "shakespeare":
        if not os.environ.get("KERAS_SEQ_DATA"):
            raise ValueError("--corpus shakespeare: set KERAS_SEQ_DATA to a folder with shakespeare.txt.")
        path = pathlib.Path(os.environ["KERAS_SEQ_DATA"]) / "shakespeare.txt"
    if not path.is_file():
        raise ValueError(f"--corpus {corpus}: there is no file {path}; expected shakespeare, pydoc or a text file.")
    data = path.read_bytes()
    if corpus == "shakespeare" and hashlib.sha256(data).hexdigest() != SHAKESPEARE_SHA256:
        raise ValueError(f"--corpus shakespeare: {path} has not the sha256 {SHAKESPEARE_SHA256}.")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"--corpus {corpus}: {path} is not UTF-8; convert it.") from error


def encoded(text: str, context: int) -> dict[str, np.ndarray]:
    """The two sides as ids, int32 `[N]` each, and the `vocabulary`, the code points of the V characters.

    Raises:
        ValueError: a side is shorter than `context` + 1 characters.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    vocabulary, ids = np.unique(codes, return_inverse=True)
    middle = int(len(ids) * 0.9)
    if min(middle, len(ids) - middle) <= context:
        raise ValueError(f"The text has {len(ids)} characters: each side needs at least {context + 1}.")
    ids = ids.astype("int32")
    return {"train": ids[:middle], "validation": ids[middle:], "vocabulary": vocabulary}
