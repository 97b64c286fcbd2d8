"""How fast does a word-level LSTM overfit on disjoint and on overlapping windows?

    python -m experiments.word_lm                                     # Python's help topics, offline
    python -m experiments.word_lm --corpus shakespeare --epochs 4 --overlap 2 --train.validate-every 250
    python -m experiments.word_lm --smoke                             # tiny sizes, takes seconds
    python -m experiments.generate logs/word_lm/20260101-120000/disjoint-seed0 --prompt "The " --max-new-tokens 60

Time: 4 to 6 minutes on 2 cores.

The same LSTM is trained with the same optimizer for the same number of steps, once on disjoint windows and once on
windows that overlap, so that each token is in four of them. The learning rate is constant, so every point of a curve is
the end of a shorter training.

Expected result on pydoc, in perplexity per token (a word, or the characters between two words): with disjoint windows,
best after 3 epochs, 25.9, and 79.7 after 8; with overlapping windows, best after 1 epoch, 26.8, and 48.2 after 2. Per
epoch, overlapping windows overfit much sooner, because an epoch has four times as many steps. Per token, both curves
fall together and reach nearly the same minimum; after it, overlapping windows overfit less. With --corpus shakespeare
as above (10 minutes): 20.4 after 2.7 epochs and 21.2 after 1.5, and at equal tokens at most 8 % apart. One seed each.
"""

import dataclasses
import pathlib
import re
from typing import Annotated

import keras
import tyro

from experiments.frame.corpora import print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.report import validation_note
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.word_lm import report as word_lm_report
from keras_seq import models, training
from keras_seq.data import ShuffledWindows, load_corpus
from keras_seq.tokenizers import WordTokenizer, split_words

WINDOWS = ("disjoint", "overlapping")


@dataclasses.dataclass(frozen=True)
class LSTMConfig(models.LSTMConfig):
    """Config of the word-level LSTM language model."""

    embedding_dim: int = 128
    """Width of the token embeddings."""
    units: int = 256
    """Width of each recurrent layer's output."""
    tie_embeddings: bool = True
    """Use the transposed embedding matrix as the head, with a projection if the widths differ."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(training.TrainConfig):
    """Training options with a constant learning rate: every point of a curve is the end of a shorter training."""

    learning_rate: float | None = 0.01
    """Peak learning rate."""
    final_lr_fraction: float = 1.0
    """Fraction of the learning rate that is left after its linear decay, at the last step."""
    validate_every: int = 100
    """Steps between two validations, each with a generated sample."""
    sample_length: int = 80
    """Tokens in a generated sample."""


@dataclasses.dataclass(frozen=True)
class WordLMConfig:
    """Train a word-level language model on disjoint and on overlapping windows."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file.
    """
    min_count: int = 3
    """Minimum count of a token in the training split; rarer ones become [UNK]. With 1, [UNK] is not trained."""
    epochs: int = 8
    """Epochs over the disjoint windows. The overlapping ones get as many tokens, so OVERLAP times fewer epochs."""
    overlap: int = 4
    """Number of overlapping windows that contain each token."""
    batch_size: int = 16
    """Windows in a batch."""
    sequence_length: int = 32
    """Sequence length T of the windows, in tokens."""
    seed: int = 0
    """Random seed of the weights, batches and dropout."""
    log_dir: str = "logs"
    """Folder for logs; the runs are written to LOG_DIR/word_lm/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/word_lm/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    lstm: LSTMConfig = dataclasses.field(default_factory=LSTMConfig)

    def __post_init__(self):
        check_options(self, min_count=1, epochs=1, batch_size=1, sequence_length=1)
        if self.overlap < 2 or self.sequence_length % self.overlap:
            raise ValueError(
                f"--overlap {self.overlap}: expected a divisor of --sequence-length {self.sequence_length}, at least 2."
            )


def smoke_config(config: WordLMConfig) -> WordLMConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        min_count=20,
        epochs=1,
        overlap=2,
        batch_size=512,
        sequence_length=8,
        train=dataclasses.replace(
            config.train, warmup_steps=4, log_every=7, validate_every=14, checkpoint_every=14, sample_length=20
        ),
        lstm=LSTMConfig(embedding_dim=16, units=24),
    )


def training_windows(config: WordLMConfig, kind: str, ids) -> ShuffledWindows:
    """Return the training windows of one run.

    Args:
        config: Options of the experiment.
        kind: "disjoint" or "overlapping".
        ids: Ids of the training split, `[N]`.
    """
    stride = config.sequence_length // (config.overlap if kind == "overlapping" else 1)
    return ShuffledWindows(ids, config.batch_size, config.sequence_length, stride, config.seed)


def train_one(
    folder: pathlib.Path, config: WordLMConfig, kind: str, steps: int, corpus, tokenizer, ids, validation_text: str
) -> dict:
    """Train and score one model.

    Args:
        folder: Folder of the run.
        config: Options of the experiment.
        kind: "disjoint" or "overlapping".
        steps: Training steps.
        corpus: The corpus, recorded in config.json.
        tokenizer: Tokenizer of the ids.
        ids: Ids of the training split, `[N]`.
        validation_text: Validation split.

    Returns:
        The content of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model = config.lstm.build_model(tokenizer.vocabulary_size, dtype=config.train.dtype_policy)
    train_config = {**dataclasses.asdict(config.train), **config.train.resolved(model)}
    corpus_info = {"name": corpus.name, "sha256": corpus.sha256}
    windows = training_windows(config, kind, ids)
    print(f"\n{folder.name}, {windows.steps_per_epoch:,} steps per epoch")
    return training.train_language_model(
        folder,
        model,
        tokenizer,
        windows,
        validation_text,
        steps,
        config.train,
        run_config(config, "lstm", config.lstm, train_config, windows=kind, seed=config.seed, corpus=corpus_info),
        folder.name,
    )


def compare(config: WordLMConfig, folder: pathlib.Path) -> tuple[dict, list[dict]]:
    """Train the models that are not finished yet, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the experiment.

    Returns:
        Sizes of the corpus, and the rows of the report.

    Raises:
        ValueError: A split of the corpus is too short.
    """
    corpus = load_corpus(config.corpus)
    check_same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    tokenizer = WordTokenizer.from_text(train_text, min_count=config.min_count)
    train_ids, validation_ids = tokenizer.encode(train_text).numpy(), tokenizer.encode(validation_text).numpy()
    # A split that is too short raises here, before anything is written.
    steps_per_epoch = {kind: training_windows(config, kind, train_ids).steps_per_epoch for kind in WINDOWS}
    num_words = sum(re.match(r"\w", token) is not None for token in split_words(validation_text))
    if len(validation_ids) <= config.sequence_length or not num_words:
        raise ValueError(
            f"The validation split has {len(validation_ids)} tokens, {num_words} of them words; expected more than "
            f"{config.sequence_length} tokens and at least one word: give a longer text."
        )
    corpus_info = {
        "corpus": corpus.name,
        "train_split_tokens": len(train_ids),
        "validation_split_tokens": len(validation_ids),
        "vocabulary_size": tokenizer.vocabulary_size,
        "train_oov_rate": float((train_ids == 0).mean()),
        "validation_oov_rate": float((validation_ids == 0).mean()),
        "tokens_per_word": len(validation_ids) / num_words,
    }
    print(
        f"{word_lm_report.describe_corpus(corpus_info)}"
        f"{validation_note(config.train, validation_text, config.sequence_length + 1)}"
    )
    print_overlap_note(train_text, validation_text)
    steps = config.epochs * steps_per_epoch["disjoint"]
    rows = []
    for kind in WINDOWS:
        run = folder / f"{kind}-seed{config.seed}"
        result = training.load_result(run) or train_one(
            run, config, kind, steps, corpus, tokenizer, train_ids, validation_text
        )
        rows.append({"windows": kind, "run": run.name, "steps_per_epoch": steps_per_epoch[kind], **result})
    rows = [word_lm_report.with_curve_stats(folder, row, corpus_info["tokens_per_word"]) for row in rows]
    word_lm_report.write_report(folder, corpus_info, rows)
    return corpus_info, rows


@exit_with_message("experiments.word_lm")
def main(arguments: list[str] | None = None):
    """Run the experiment from the command line."""
    with start_or_resume(WordLMConfig, "word_lm", __doc__, arguments, smoke_config) as (config, folder):
        print(word_lm_report.final_message(folder, *compare(config, folder)))


if __name__ == "__main__":
    main()
