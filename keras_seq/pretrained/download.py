"""Get a Hugging Face folder by its name: a pinned revision, from this machine's cache, and from the network if allowed.

commit = "607a30d783dfa663caf39e06633721c8d4cfcd7e"        # git ls-remote https://huggingface.co/NAME HEAD prints it
folder = download("openai-community/gpt2", revision=commit, online=True)       # once
loaded = load(download("openai-community/gpt2", revision=commit))              # then offline
"""

import pathlib
import re

from keras_seq.pretrained.tensor_files import PretrainedError

FILES = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "chat_template.jinja")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")


def download(name: str, revision: str | None = None, online: bool = False) -> pathlib.Path:
    """Return the folder of a model in `huggingface_hub`'s cache; pickles and code are never fetched.

    Args:
        name: Name of the repository, such as `openai-community/gpt2`.
        revision: The commit, 40 hexadecimal digits: a branch would be other weights one day. The error for another
            value has the command that prints the latest commit.
        online: Whether files that are not in the cache may be fetched.

    Returns:
        The folder, for `load`.

    Raises:
        PretrainedError: The revision is not a commit, `huggingface_hub` is not installed, or the files are not in the
            cache and cannot or may not be fetched.
    """
    if not isinstance(revision, str) or not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise PretrainedError(
            f"revision={revision!r}; expected a commit of {name}, 40 hexadecimal digits: "
            f"`git ls-remote https://huggingface.co/{name} HEAD` prints the latest."
        )
    try:
        from huggingface_hub import snapshot_download  # here, because it is an extra
    except ImportError:
        raise PretrainedError('huggingface_hub is not installed: pip install "keras_seq[pretrained]".') from None
    try:
        path = snapshot_download(
            name, revision=revision, allow_patterns=[*FILES, *TOKENIZER_FILES], local_files_only=not online
        )
    except Exception as error:  # of the network, the hub and the cache: many classes
        remedy = "expected an existing name and revision" if online else "pass online=True to fetch it once"
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise PretrainedError(f"{name} at {revision} cannot be had ({reason}); {remedy}.") from error
    return pathlib.Path(path)
