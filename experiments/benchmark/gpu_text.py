"""Read a text as nanoGPT does: the first 90 % of the characters for training, the rest for validation.

    ids = indices of the characters in the sorted list of all characters of the text

Same result as `load_corpus`, `Corpus.split` and `CharacterTokenizer` of keras_seq, which need TensorFlow.
"""

import hashlib
import os
import pathlib

import numpy as np

SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def read_text(corpus: str) -> str:
    """Read the text of a corpus.

    Args:
        corpus: `"shakespeare"` (in the folder KERAS_SEQ_DATA), `"pydoc"` (help of this Python) or a path.

    Raises:
        ValueError: The file does not exist, is not UTF-8, or does not have the sha256 of tiny Shakespeare.
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
        raise ValueError(f"--corpus {corpus}: {path} is not a file; expected shakespeare, pydoc or a text file.")
    data = path.read_bytes()
    if corpus == "shakespeare" and hashlib.sha256(data).hexdigest() != SHAKESPEARE_SHA256:
        raise ValueError(f"--corpus shakespeare: {path} does not have the sha256 {SHAKESPEARE_SHA256}.")
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"--corpus {corpus}: {path} is not UTF-8; convert it.") from error


def encode_splits(text: str, context_length: int) -> dict[str, np.ndarray]:
    """Encode the training and validation splits of a text.

    Args:
        text: The whole text.
        context_length: Context length of the model, in characters.

    Returns:
        `train` and `validation`, int32 `[N]` each, and `vocabulary`, the code points of the V characters.

    Raises:
        ValueError: A split is shorter than `context_length` + 1 characters.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    vocabulary, ids = np.unique(codes, return_inverse=True)
    boundary = int(len(ids) * 0.9)
    if min(boundary, len(ids) - boundary) <= context_length:
        raise ValueError(f"The text has {len(ids)} characters: each split needs at least {context_length + 1}.")
    ids = ids.astype("int32")
    return {"train": ids[:boundary], "validation": ids[boundary:], "vocabulary": vocabulary}
