"""Turn texts that may be larger than memory into a folder of token ids, to train on.

    keras-seq prepare texts/ --to data/texts                         # *.txt, *.jsonl, *.parquet, .gz, .zst
    keras-seq prepare "web/*.jsonl.gz" --tokenizer bpe --vocabulary-size 16384 --to data/web
    keras-seq prepare more/ --tokenizer data/web --to data/more      # with the tokenizer of that folder
    keras-seq prepare --verify data/web                              # compare all checksums

Time: under half a minute for a gigabyte by characters, three by byte pairs, on 2 cores.

A run that was stopped continues when the same command is given again, and ends with the same bytes. docs/data.md tells
what the folder holds and at which sizes to use it.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated

import tyro
from tqdm import tqdm

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import check_options, command_line
from keras_seq.data import TokenFiles
from keras_seq.data.prepare import prepare
from keras_seq.data.token_shards import TOKENIZER_NAME, is_prepared
from keras_seq.tokenizers import TOKENIZERS, load_tokenizer


@dataclasses.dataclass(frozen=True)
class PrepareConfig:
    """Turn texts into a folder of token ids."""

    inputs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")] = ()
    """Files, folders and patterns. A *.txt file is one document, *.jsonl has one a line, *.parquet one a row."""
    to: pathlib.Path | None = None
    """Folder to write."""
    tokenizer: str = "characters"
    """characters: all that the texts have. words, wordpiece or bpe: trained on a sample. Or a folder with a
    tokenizer.json, to use that one."""
    vocabulary_size: int | None = None
    """Most tokens of a tokenizer that is trained; not for characters."""
    field: str = "text"
    """Field of JSON objects, or column of Parquet files, that holds the text."""
    processes: int | None = None
    """Processes that read and encode; one for each core by default."""
    sample_characters: int = 1 << 26
    """About how many characters to train the tokenizer on; not for characters."""
    group_bytes: int = 1 << 27
    """Bytes of input in each file of ids."""
    verify: pathlib.Path | None = None
    """Folder whose files to compare with their checksums, instead of preparing one."""

    def __post_init__(self):
        check_options(self, processes=1, sample_characters=1, group_bytes=1, vocabulary_size=1)
        if self.verify is None and not (self.inputs and self.to):
            raise ValueError("INPUT and --to: expected at least one file or folder of texts, and the folder to write.")
        if self.verify is not None and (self.inputs or self.to):
            raise ValueError("--verify: expected no INPUT and no --to beside it.")
        if self.tokenizer not in TOKENIZERS and not (pathlib.Path(self.tokenizer) / TOKENIZER_NAME).is_file():
            expected = f"{', '.join(TOKENIZERS)}, or a folder with a {TOKENIZER_NAME}"
            raise ValueError(f"--tokenizer {self.tokenizer}: expected {expected}.")
        if self.vocabulary_size is not None and self.tokenizer not in ("words", "wordpiece", "bpe"):
            raise ValueError(f"--vocabulary-size {self.vocabulary_size}: expected words, wordpiece or bpe with it.")


def summary(folder: pathlib.Path, index: dict) -> str:
    """Return what a folder holds, and what became [UNK], in a sentence each."""
    holds = (
        f"{folder}: {index['tokens']:,} tokens of {index['documents']:,} documents in {len(index['shards'])} files, "
        f"{index['characters']:,} characters, vocabulary size {index['vocabulary_size']:,}."
    )
    if not index["unknown"]:
        return holds
    share, examples = index["unknown"] / index["tokens"], ", ".join(map(repr, index["unknown_examples"]))
    return (
        f"{holds}\n{index['unknown']:,} of the tokens ({share:.2%}) are [UNK], for text that the tokenizer does not "
        f"know, such as {examples}: --tokenizer characters and bpe keep every text; a larger --vocabulary-size or "
        "--sample-characters, or a tokenizer trained on these texts, keeps more of it."
    )


def prepare_folder(config: PrepareConfig) -> str:
    """Write the folder of ids, with a bar on the terminal, and return its summary."""
    is_kind = config.tokenizer in TOKENIZERS
    tokenizer = config.tokenizer if is_kind else load_tokenizer(pathlib.Path(config.tokenizer) / TOKENIZER_NAME)
    options = {} if config.vocabulary_size is None else {"vocabulary_size": config.vocabulary_size}
    with tqdm(unit="B", unit_scale=True, desc=config.to.name, leave=False, disable=None) as bar:

        def progress(done, total):
            bar.total = total
            bar.update(done - bar.n)

        names = ("field", "processes", "group_bytes", "sample_characters")
        index = prepare(
            config.inputs,
            config.to,
            tokenizer,
            progress=progress,
            **{name: getattr(config, name) for name in names},
            **options,
        )
    return f"{summary(config.to, index)}\nTrain on it: keras-seq train {config.to}"


@exit_with_message("keras-seq prepare", use_devices=False)
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(PrepareConfig, "keras-seq prepare", __doc__, arguments)
    if config.verify is None:
        print(prepare_folder(config))
        return
    if not is_prepared(str(config.verify)):
        raise ValueError(f"--verify {config.verify}: expected a folder that keras-seq prepare wrote.")
    files = TokenFiles.open(config.verify)
    files.verify()
    print(f"{config.verify}: all {len(files.shards)} files have their checksums.")
