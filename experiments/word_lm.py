"""How fast does a word-level LSTM overfit on disjoint and on overlapping windows?

    python -m experiments.word_lm                                     # Python's help topics, offline
    python -m experiments.word_lm --corpus shakespeare --epochs 4 --overlap 2 --train.validate-every 250
    python -m experiments.word_lm --smoke                             # tiny sizes, takes seconds
    keras-seq generate logs/word_lm/20260101-120000-pydoc/disjoint-seed0 --prompt "The " --max-new-tokens 60

Time: 4 to 6 minutes on 2 cores.

The same LSTM is trained for the same number of steps on either kind; each token is in four of the overlapping windows.
The learning rate is constant, so every point of a curve is the end of a shorter training.

Expected: per epoch, overlapping windows overfit much sooner; per token, both curves fall together, to perplexities of
25.9 (disjoint) and 26.8.
"""

import dataclasses
import math
import pathlib
import re
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import LogLocator

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.commands.options import BatchSize, CorpusName, LogDir, Resume, Seed, SequenceLength, Smoke, check_options
from keras_seq.data import ShuffledWindows
from keras_seq.models import LSTMConfig
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, without_texts
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus
from keras_seq.tokenizers import WordTokenizer, split_words
from keras_seq.tracking.summaries import SAMPLE
from keras_seq.training import read_metrics
from keras_seq.training.log import LOSS_KEYS

WINDOWS = ("disjoint", "overlapping")


@dataclasses.dataclass(frozen=True)
class WordLMConfig:
    """Train a word-level language model on disjoint and on overlapping windows."""

    corpus: CorpusName = "pydoc"
    min_count: int = 3
    """Minimum count of a token in the training split; rarer ones become [UNK]. With 1, [UNK] is not trained."""
    epochs: int = 8
    """Epochs over the disjoint windows. The overlapping ones get as many tokens, so OVERLAP times fewer epochs."""
    overlap: int = 4
    """Number of overlapping windows that contain each token."""
    batch_size: BatchSize = 16
    sequence_length: SequenceLength = 32
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(
        learning_rate=0.01, final_lr_fraction=1.0, validate_every=100, sample_length=80
    )
    lstm: LSTMConfig = LSTMConfig(embedding_dim=128, units=256, tie_embeddings=True)

    def __post_init__(self):
        check_options(self, min_count=1, epochs=1, batch_size=1, sequence_length=1)
        if self.overlap < 2 or self.sequence_length % self.overlap:
            raise ValueError(
                f"--overlap {self.overlap}: expected a divisor of --sequence-length {self.sequence_length}, at least 2."
            )

    def windows(self, kind: str, ids) -> ShuffledWindows:
        """Return the training windows of ids `[N]`; overlapping ones start every T / overlap tokens."""
        stride = self.sequence_length // (self.overlap if kind == "overlapping" else 1)
        return ShuffledWindows(ids, self.batch_size, self.sequence_length, stride, self.seed)


SMOKE = {
    **{"min_count": 20, "epochs": 1, "overlap": 2, "batch_size": 512, "sequence_length": 8},
    "train": {"warmup_steps": 4, "log_every": 7, "validate_every": 14, "checkpoint_every": 14, "sample_length": 20},
    "lstm": {"embedding_dim": 16, "units": 24},
}


def train_one(
    run: pathlib.Path, config: WordLMConfig, kind: str, windows: ShuffledWindows, steps: int, data: SplitCorpus
) -> dict:
    """Train the LSTM on one kind of windows."""
    model = config.lstm.build_model(data.tokenizer.vocabulary_size, dtype=config.train.dtype_policy)
    saved = run_config(config, "lstm", config.lstm, config.train, model, data.corpus, windows=kind, seed=config.seed)
    inputs = (data.tokenizer, windows, data.validation_text, steps, config.train, saved)
    return training.train_language_model(run, model, *inputs)


def corpus_info(data: SplitCorpus, sequence_length: int) -> dict:
    """Return the sizes of a corpus that is long enough for windows of this length, and its rates of [UNK]."""
    num_words = sum(re.match(r"\w", token) is not None for token in split_words(data.validation_text))
    if len(data.validation) <= sequence_length or not num_words:
        raise ValueError(
            f"The validation split has {len(data.validation)} tokens, {num_words} of them words; expected more than "
            f"{sequence_length} tokens and at least one word: give a longer text."
        )
    return {
        "corpus": data.corpus.name,
        "train_split_tokens": len(data.train),
        "validation_split_tokens": len(data.validation),
        "vocabulary_size": data.tokenizer.vocabulary_size,
        "train_oov_rate": float((data.train == 0).mean()),
        "validation_oov_rate": float((data.validation == 0).mean()),
        "tokens_per_word": len(data.validation) / num_words,
    }


def with_curve_findings(folder: pathlib.Path, row: dict, tokens_per_word: float) -> dict:
    """Return a run's row with its best and its last validation, in perplexity per token or per word."""
    lines = read_metrics(folder / row["run"], "validation")
    validation = [{name.removesuffix(SAMPLE): value for name, value in line.items()} for line in lines]
    best = min(validation, key=lambda line: line["val_loss"])
    return {
        **row,
        "epochs": row["train_tokens"] / row["tokens_per_epoch"],
        "best": {
            "tokens": best["tokens"],
            "epochs": best["tokens"] / row["tokens_per_epoch"],
            "perplexity": math.exp(best["val_loss"]),
            "perplexity_streaming": math.exp(best["val_loss_streaming"]),
            "val_word_perplexity": math.exp(best["val_loss"] * tokens_per_word),
            "val_bits_per_character": best["val_bits_per_character"],
        },
        "train_perplexity": math.exp(row["train_loss"]),
        "perplexity": math.exp(validation[-1]["val_loss"]),
    }


def at_equal_positions(folder: pathlib.Path, rows: Sequence[dict]) -> dict[str, list[float]]:
    """Return the training and validation perplexity of each run after equal epochs, then after equal tokens."""
    curves, tokens_per_epoch = [], []
    for row in rows:
        for split, key in LOSS_KEYS.items():
            curves.append(plots.curve(folder / row["run"], key, split))
            tokens_per_epoch.append(row["tokens_per_epoch"])
    epochs = range(1, int(min(row["epochs"] for row in rows)) + 1)
    positions = {f"epoch {epoch}": [epoch * tokens for tokens in tokens_per_epoch] for epoch in epochs}
    for tokens in (fraction * rows[0]["train_tokens"] for fraction in (0.125, 0.25, 0.5, 1.0)):
        positions[f"{tokens:,.0f} tokens"] = [tokens] * len(curves)
    first = max(tokens[0] for tokens, _ in curves)
    return {
        name: [math.exp(np.interp(position, *curve)) for position, curve in zip(at, curves, strict=True)]
        for name, at in positions.items()
        if min(at) >= first
    }


def verdict(rows: Sequence[dict]) -> str:
    """Say where both curves have their minimum and where they end, and how certain that is."""
    minima = [
        f"{row['best']['perplexity']:.1f} on {row['windows']} windows, after {row['best']['epochs']:.1f} epochs"
        for row in rows
    ]
    ends = " and ".join(f"{row['perplexity']:.1f}" for row in rows)
    return (
        f"The lowest perplexity is {', and '.join(minima)}; after {rows[0]['train_tokens']:,} tokens it is {ends}. One "
        "seed each: differences of a few percent may be chance."
    )


COLUMNS = {
    **{"windows": "{windows}".format_map, "train seconds": "{train_seconds:.0f}".format_map},
    **{"train tokens": "{train_tokens:,}".format_map, "epochs": "{epochs:.1f}".format_map},
    **{"best at tokens": "{best[tokens]:,}".format_map, "best at epoch": "{best[epochs]:.1f}".format_map},
    "perplexity": "{best[perplexity]:.1f}".format_map,
    "perplexity, streaming": "{best[perplexity_streaming]:.1f}".format_map,
    "perplexity/word": "{best[val_word_perplexity]:.0f}".format_map,
    "val bits/char": "{best[val_bits_per_character]:.3f}".format_map,
    "final train perplexity": "{train_perplexity:.1f}".format_map,
    "final perplexity": "{perplexity:.1f}".format_map,
}
UNKNOWN = "[UNK] is {train_oov_rate:.1%} of the training and {validation_oov_rate:.1%} of the validation split"
NOTES = (
    "perplexity: exp(val_loss per token), over disjoint windows of the validation split, each from the zero state; "
    "streaming: with the state carried from start to end. perplexity/word: exp(summed loss / number of words), where "
    "the sum includes spaces and punctuation. val bits/char: the summed loss over the number of characters. These "
    "metrics are of the validation with the lowest perplexity, the last two columns of the end of training. An unknown "
    "word is scored as the one token [UNK], without its letters, so val bits/char does not compare with that of a "
    "character model, nor with that of another --min-count."
)


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write word_lm.png: training and validation perplexity, by tokens on the left and by epochs on the right."""
    figure, panels = plots.subplots(1, 2, figsize=(11, 4.8), sharey=True)
    colors = plots.colors([f"{row['windows']} windows" for row in rows])
    point = {"linewidth": 2, "marker": "o", "markersize": 7}
    styles = {"training": {"alpha": 0.4, "linewidth": 1.3}, "validation, its minimum marked": point}
    highest, note = 0.0, plots.sample_note(folder / rows[0]["run"])
    for row, color in zip(rows, colors.values(), strict=True):
        for (split, key), style in zip(LOSS_KEYS.items(), styles.values(), strict=True):
            tokens, losses = plots.curve(folder / row["run"], key, split)
            style = {"color": color, "markevery": [int(np.argmin(losses))], **style}
            for axes, unit in zip(panels, (1, row["tokens_per_epoch"]), strict=True):
                axes.plot(np.divide(tokens, unit), np.exp(losses), **style)
        highest = max(highest, np.exp(losses[0]))
    panels[0].set(yscale="log", ylim=(None, 1.5 * highest), ylabel=f"perplexity{note} per token")
    panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[0].yaxis.set_minor_formatter("")
    plots.token_axis(panels[0])
    panels[1].set_xlabel("epochs")
    plots.legend(figure, colors, styles, loc="outside upper center", ncols=4)
    plots.save(figure, folder / "word_lm.png")


def compare(config: WordLMConfig, folder: pathlib.Path) -> Report:
    """Train both models, unless they are finished in `folder`, and report the comparison."""
    data = SplitCorpus(
        config.corpus, folder, tokenizer=lambda _, train: WordTokenizer.from_text(train, min_count=config.min_count)
    )
    windows = {kind: config.windows(kind, data.train) for kind in WINDOWS}
    info = corpus_info(data, config.sequence_length)
    data.introduce(config.train, config.sequence_length + 1, UNKNOWN.format(**info))
    steps, rows = config.epochs * windows["disjoint"].steps_per_epoch, []
    for kind in WINDOWS:
        run = folder / f"{kind}-seed{config.seed}"
        result = run_once(
            run, config.seed, lambda run=run, kind=kind: train_one(run, config, kind, windows[kind], steps, data)
        )
        tokens_per_epoch = windows[kind].steps_per_epoch * windows[kind].tokens_per_step
        row = {"windows": kind, "run": run.name, "tokens_per_epoch": tokens_per_epoch, **result}
        rows.append(with_curve_findings(folder, row, info["tokens_per_word"]))
    plot(folder, rows)
    header = ["after", *(f"{row['windows']}, {split}" for row in rows for split in LOSS_KEYS)]
    positions = at_equal_positions(folder, rows).items()
    return Report(
        f"A word-level model on {info['corpus']}, on disjoint and overlapping windows",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("windows", "best at tokens", "best at epoch", "perplexity", "final perplexity"),
        {**info, "runs": without_texts(rows)},
        f"{UNKNOWN.format(**info)}. {NOTES}",
        [
            Table(header, [[name, *(f"{value:.1f}" for value in values)] for name, values in positions]),
            "![Perplexity by tokens, and by epochs](word_lm.png)",
        ],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


main = experiment_main("word_lm", WordLMConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
