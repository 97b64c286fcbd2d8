"""How well does BERT predict masked tokens of a text (Devlin et al., 2019, https://arxiv.org/abs/1810.04805)?

    python -m experiments.masked_lm                                # Python's help topics, offline
    python -m experiments.masked_lm --corpus shakespeare --text "To be or not to [MASK]." --text "Good [MASK], my lord."
    python -m experiments.masked_lm --run logs/masked_lm/20260101-120000-pydoc/encoder-seed0 --text "Return [MASK]."
    python -m experiments.masked_lm --smoke                        # tiny sizes, takes seconds

Time: 5 to 6 minutes on 2 cores.

Expected on pydoc: 35.8 % of the masked tokens right at the first guess, 3.88 nats per token; by token frequencies alone
23.3 % and 5.06. The predictions in texts given by --text are mostly frequent words.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tyro
from keras import ops
from matplotlib.colors import PowerNorm
from matplotlib.ticker import PercentFormatter

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import models, training
from keras_seq.callbacks import AttentionMaps
from keras_seq.commands import options
from keras_seq.commands.options import check_options
from keras_seq.data import ArrayBatches, MaskedLMMaskGenerator
from keras_seq.data.pipeline import step_dataset
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.streaming import sample_rows
from keras_seq.interpretability import attention_weights
from keras_seq.ops.compiled import compiled
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, percent_interval
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.tokenizers.subwords import pack_segments
from keras_seq.tracking import Summaries
from keras_seq.tracking.tracker import track_progress


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig:
    """Train an encoder on masked language modeling, or fill the masks of a text."""

    corpus: options.CorpusName = "pydoc"
    vocabulary_size: int = 2000
    """Maximum vocabulary size of the WordPiece tokenizer, which is trained on the training split."""
    tokens: int = 1_024_000
    """Tokens that the encoder is trained on, masked or not, over all epochs."""
    batch_size: int = 8
    """Rows in a batch."""
    mask_rate: float = 0.15
    """Probability that a token is masked."""
    text: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Text with [MASK] for the encoder to fill; may be given several times."""
    top_k: int = 5
    """Number of predictions shown for each [MASK] of --text with --run."""
    run: str | None = None
    """Folder of a finished run whose model fills --text; nothing is trained."""
    seed: int = 0
    """Random seed of the weights, rows, masks and dropout."""
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = training.TrainConfig(learning_rate=0.005)
    encoder: models.BertConfig = models.BertConfig(context_length=64)

    def __post_init__(self):
        check_options(self, vocabulary_size=1, tokens=1, batch_size=1, top_k=1)
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"--mask-rate {self.mask_rate}: expected a probability above 0 and at most 1.")
        for name, minimum in (("context_length", 8), ("num_segments", 2)):
            if (value := getattr(self.encoder, name)) < minimum:
                raise ValueError(f"--encoder.{name.replace('_', '-')} {value}: expected at least {minimum}.")
        if self.run is not None:
            options.check_together("--run", self.run, "--text", self.text or None)

    def options_without_effect(self) -> dict[str, str]:
        return {"top_k": "--run"} if self.run is None else options.options_of_a_training(self)

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return options.num_steps(self.tokens, self.batch_size * self.encoder.context_length)


SMOKE = {
    **{"vocabulary_size": 400, "tokens": 20 * 8 * 32, "batch_size": 8, "train": options.SMOKE_TRAIN},
    "encoder": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32, "context_length": 32},
}


MASK = "[MASK]"
OVERLAP = 4  # training rows that contain each token, at different positions
SENTENCES = {
    "pydoc": (
        "If the object is not callable, a [MASK] is raised.",
        "The [MASK] statement is used for conditional execution.",
        "Return the [MASK] of the sequence.",
    ),
    "shakespeare": ("To be or not to [MASK].", "Good [MASK], my lord.", "What is thy [MASK], sir?"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedRows:
    """Rows with masked tokens."""

    inputs: dict[str, np.ndarray]  # token and segment ids [N, T]
    targets: np.ndarray  # [N, T]
    is_masked: np.ndarray  # [N, T]

    def select(self, rows: np.ndarray | slice) -> "MaskedRows":
        inputs = {name: values[rows] for name, values in self.inputs.items()}
        return MaskedRows(inputs, self.targets[rows], self.is_masked[rows])


class MaskedCorpus(SplitCorpus):
    """A corpus in word pieces, the texts to fill, the masked rows of the validation text, and a sample of them."""

    def __init__(self, config: MaskedLMConfig, folder: pathlib.Path):
        def tokenizer(text, train_text):
            return WordPieceTokenizer.from_text(train_text, vocabulary_size=config.vocabulary_size)

        super().__init__(config.corpus, folder, tokenizer=tokenizer)
        self.config, self.length = config, config.encoder.context_length
        self._check("training", self.train, self.length + (config.batch_size - 1) * (self.length // OVERLAP))
        rows = segment_pairs(self.train, self.length, self.length // OVERLAP, config.seed)
        self.train_batches = ArrayBatches(rows, config.batch_size, config.seed)
        self.masked = self._masked_rows(self.validation_text)
        self.sample = self._sample(config.train)
        self.texts = config.text or SENTENCES.get(config.corpus) or self._passages()
        for text in self.texts:
            encode_masked(text, self.tokenizer, self.length)

    def _check(self, part, ids, needed):
        if len(ids) < needed:
            remedy = "give a longer one (--corpus), or a smaller --encoder.context-length or --batch-size"
            raise ValueError(f"The {part} text has {len(ids)} tokens; expected at least {needed}: {remedy}.")

    def mask_generator(self, seed: int) -> MaskedLMMaskGenerator:
        """Return a generator that masks a fraction of the tokens that are not special."""
        special, vocabulary_size = tuple(SPECIAL_TOKENS.values()), self.tokenizer.vocabulary_size
        return MaskedLMMaskGenerator(SPECIAL_TOKENS[MASK], vocabulary_size, special, self.config.mask_rate, seed)

    def _masked_rows(self, text):
        self._check("validation", ids := self.encode(text), self.length)
        rows = segment_pairs(ids, self.length, self.length - 3, self.config.seed)
        # Not the seed of training, and always step 0: every validation masks the same tokens.
        masked_ids, targets, weights = self.mask_generator(self.config.seed + 1).batch(0, rows["token_ids"])
        if not weights.any():
            raise ValueError("None of the validation tokens is masked; expected a longer validation split.")
        return MaskedRows({**rows, "token_ids": masked_ids}, targets, weights > 0)

    def _sample(self, train):
        """Return the rows that are scored during training, spread evenly over all; None for all."""
        rows, total = self.masked.targets, len(self.validation_text)
        count = train.validated_characters(total, 2) * len(rows) // total
        if count == len(rows):
            return None
        option = f"--train.validation-characters {train.validation_characters}"
        if count < 1:
            raise ValueError(f"{option}: less than a row of {self.length} tokens; expected more characters.")
        sample = self.masked.select(sample_rows(rows, count))
        if not sample.is_masked.any():
            raise ValueError(f"{option}: none of their tokens is masked; expected more characters.")
        return sample

    def _passages(self):
        """Return up to four passages of the validation text, each with [MASK] for the token in the middle."""
        length, decode = (self.length - 3) // 2, self.tokenizer.decode
        texts = np.lib.stride_tricks.sliding_window_view(self.validation, length)[: 3 * length + 1 : length]
        return tuple(f"{decode(text[: length // 2])} {MASK} {decode(text[length // 2 + 1 :])}" for text in texts)


def segment_pairs(ids: np.ndarray, length: int, stride: int, seed: int) -> dict[str, np.ndarray]:
    """Cut ids `[N]` into rows of `length` ids, with the special ones, whose texts start every `stride` ids."""
    texts = np.lib.stride_tricks.sliding_window_view(ids, length - 3)[::stride]
    middles = np.random.default_rng(seed).integers(1, length - 3, size=len(texts))
    pairs = [(text[:middle], text[middle:]) for text, middle in zip(texts, middles, strict=True)]
    rows = pack_segments(*zip(*pairs, strict=True), length)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}


def encode_masked(text: str, tokenizer: WordPieceTokenizer, context_length: int) -> dict[str, np.ndarray]:
    """Return the token and segment ids `[1, T]` of a text with [MASK], which is not special to the tokenizer."""
    if MASK not in text:
        raise ValueError(f"--text {text!r}: expected {MASK} in the place of a word.")
    first, *rest = (tokenizer.encode(part).tolist() for part in text.split(MASK))
    ids = [*first, *(n for part in rest for n in (SPECIAL_TOKENS[MASK], *part))]
    if (length := len(ids) + 2) > context_length:
        expected = f"expected at most {context_length}, the context length of the model: shorten the text"
        raise ValueError(f"--text {text[:40]!r}...: {length} tokens with [CLS] and [SEP]; {expected}.")
    rows = pack_segments([ids], None, None)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}


TOP = 5  # of top-5 accuracy
BATCH_SIZE = 64  # rows scored at a time


def validator(model: keras.Model, tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> Callable:
    """Return the function from `MaskedRows` to the scores at their masked tokens and the predictions for the texts."""

    def losses_and_ranks(inputs, targets):
        """Compute -log p of the targets, and the number of ids with a higher logit: `[B, T]` each."""
        logits = model(inputs, training=False)
        target_logits = ops.take_along_axis(logits, targets[..., None], axis=-1)
        return token_losses(logits, targets), ops.sum(ops.cast(logits > target_logits, "int32"), axis=-1)

    compute = compiled(losses_and_ranks, model, reduce_retracing=True)

    def validate(rows: MaskedRows) -> Summaries:
        scores = []
        for start in track_progress(range(0, len(rows.targets), BATCH_SIZE), rows.targets.size):
            batch = rows.select(slice(start, start + BATCH_SIZE))
            results = map(ops.convert_to_numpy, compute(batch.inputs, batch.targets))
            scores.append([values[batch.is_masked] for values in results])
        losses, ranks = map(np.concatenate, zip(*scores, strict=True))
        scalars = {
            "val_loss": float(losses.mean(dtype="float64")),
            "accuracy": float(np.mean(ranks == 0)),
            "top5_accuracy": float(np.mean(ranks < TOP)),
        }
        return Summaries(scalars, {"predictions": "\n".join(filled(model, tokenizer, text) for text in texts)})

    return validate


def filled(model: keras.Model, tokenizer: WordPieceTokenizer, text: str, top: int = TOP) -> str:
    """Return the text and, on a line for each [MASK], the most likely tokens and their probabilities."""
    row = encode_masked(text, tokenizer, model.get_layer("token_id_check").context_length)
    (logits,) = ops.convert_to_numpy(model(row, training=False)).astype("float64")
    lines = [text]
    for position in np.flatnonzero(row["token_ids"][0] == SPECIAL_TOKENS[MASK]):
        probabilities = np.exp(logits[position] - np.logaddexp.reduce(logits[position]))
        likeliest = np.argsort(-probabilities)[:top]
        lines.append("    " + "   ".join(f"{tokenizer.vocabulary[n]} {probabilities[n]:.0%}" for n in likeliest))
    return "\n".join(lines)


def unigram_baseline(train: np.ndarray, targets: np.ndarray, vocabulary_size: int) -> dict[str, float]:
    """Score a prediction of ids `[M]` by the unigram frequencies of the training ids `[N]`, with add-one smoothing."""
    counts = np.bincount(train, minlength=vocabulary_size) + 1
    counts[list(SPECIAL_TOKENS.values())] = 0  # never masked
    order = np.argsort(-counts, kind="stable")
    return {
        "val_loss": float(-np.log(counts[targets] / counts.sum()).mean()),
        "accuracy": float(np.mean(targets == order[0])),
        "top5_accuracy": float(np.isin(targets, order[:TOP]).mean()),
    }


def train_one(run: pathlib.Path, config: MaskedLMConfig, data: MaskedCorpus) -> dict:
    """Train and score the encoder; its tokens are masked anew at every step."""
    tokenizer, train, length = data.tokenizer, config.train, config.encoder.context_length
    model = models.masked_lm(config.encoder.build_model(tokenizer.vocabulary_size, dtype=train.dtype_policy))
    mask_generator = data.mask_generator(config.seed)

    def masked_batch(step):
        rows = data.train_batches.batch(step)
        masked_ids, targets, weights = mask_generator.batch(step, rows["token_ids"])
        return {**rows, "token_ids": masked_ids}, targets, weights

    def finish(summaries):
        targets = data.masked.targets[data.masked.is_masked]
        baseline = unigram_baseline(data.train, targets, tokenizer.vocabulary_size)
        return {"masked_tokens": len(targets), "unigram_baseline": baseline}

    validations = {"validate_fn": lambda: validate(data.sample or data.masked)}
    if data.sample is not None:
        validations["final_validate_fn"] = lambda: validate(data.masked)
    row, validate = encode_masked(data.texts[0], tokenizer, length), validator(model, tokenizer, data.texts)
    attention = AttentionMaps(row, [tokenizer.vocabulary[n] for n in row["token_ids"][0]])
    return training.train_model(
        *(run, model, functools.partial(step_dataset, masked_batch), config.batch_size * length, config.steps, train),
        config=run_config(config, "encoder", config.encoder, train, model, data.corpus, seed=config.seed),
        tokenizer=tokenizer,
        loss=TokenCrossEntropy(),
        diagnostics=[functools.partial(attention.compute_summaries, model)],
        finish=finish,
        **validations,
    )


NOTES = (
    "All metrics are of the masked tokens of the validation split, the same at every validation. val_loss: nats per "
    "masked token. top-5 accuracy: the fraction of them among the model's five most likely tokens. unigram: predicts "
    "by the frequencies of the tokens in the training split."
)


def table(result: dict) -> Table:
    """Return a line for the encoder and one for the unigram frequencies."""
    header = ["model", "parameters", "train seconds", "masked tokens", "val_loss", "accuracy", "top-5 accuracy"]
    lines, sizes = [], [f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"]
    for name, cells, scores in (("encoder", sizes, result), ("unigram", ["-", "-"], result["unigram_baseline"])):
        values = [f"{scores['val_loss']:.3f}", f"{scores['accuracy']:.1%}", f"{scores['top5_accuracy']:.1%}"]
        lines.append([name, *cells, f"{result['masked_tokens']:,}", *values])
    return Table(header, lines)


def verdict(result: dict) -> str:
    """Compare the encoder with the unigram frequencies, with a 95 % interval of its accuracy."""
    baseline, accuracy = result["unigram_baseline"], percent_interval(result["accuracy"], result["masked_tokens"])
    gain = baseline["val_loss"] - result["val_loss"]
    return (
        f"The encoder's first guess is right for {accuracy} of the masked tokens, that of the token frequencies for "
        f"{baseline['accuracy']:.1%}; its loss is {abs(gain):.3f} nats per token {'lower' if gain > 0 else 'higher'}. "
        "In parentheses the 95 % interval for this many tokens; one seed."
    )


def plot_curves(folder: pathlib.Path, run: pathlib.Path, baseline: dict):
    """Write masked_lm.png: losses on the left, accuracies on the right, unigram frequencies as dashed lines."""
    figure, (losses, accuracies) = plots.subplots(1, 2, figsize=(11, 4.6))
    losses.plot(*plots.curve(run, "loss", "train"), color="C0", alpha=0.45, label="training")
    for axes, key, label, color in (
        (losses, "val_loss", f"validation{plots.sample_note(run)}", "C1"),
        (accuracies, "top5_accuracy", "top-5 accuracy", "C2"),
        (accuracies, "accuracy", "accuracy", "C1"),
    ):
        axes.plot(*plots.curve(run, key), color=color, label=label, marker="o", markersize=3.5)
        axes.axhline(baseline[key], color=color, linestyle="--", linewidth=1.2, label=f"{label}, unigram")
    for axes in (losses, accuracies):
        plots.token_axis(axes, "training tokens, masked or not")
        axes.legend()
    losses.set_ylabel("loss (nats per masked token)")
    accuracies.set_ylabel(f"accuracy{plots.sample_note(run)}, validation")
    accuracies.yaxis.set_major_formatter(PercentFormatter(1.0))
    accuracies.set_ylim(bottom=0)
    plots.save(figure, folder / "masked_lm.png")


def plot_attention(folder: pathlib.Path, text: str, model: keras.Model, tokenizer: WordPieceTokenizer):
    """Write attention.png: a row of heads for each block, each with its queries in rows and its keys in columns."""
    row = encode_masked(text, tokenizer, model.get_layer("token_id_check").context_length)
    tokens = [tokenizer.vocabulary[n] for n in row["token_ids"][0]]
    blocks = np.concatenate([*attention_weights(model, row).values()])  # [blocks, H, T, T]
    size = (1.2 + 0.11 * len(tokens)) * np.array(blocks.shape[1::-1])  # inches
    figure, grid = plots.subplots(*blocks.shape[:2], figsize=size, sharex=True, sharey=True, squeeze=False)
    for (block, head), axes in np.ndenumerate(grid):
        axes.grid(visible=False)
        image = axes.imshow(blocks[block, head], cmap="Oranges", norm=PowerNorm(0.5, 0, 1))
        axes.set_title(f"block {block + 1}, head {head + 1}", fontsize=8)
        axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
        axes.set_yticks(range(len(tokens)), tokens, fontsize=7)
    figure.colorbar(image, ax=grid, shrink=0.5, label="attention weight", ticks=[0, 0.05, 0.2, 0.5, 1])
    plots.save(figure, folder / "attention.png")


def pretrain(config: MaskedLMConfig, folder: pathlib.Path) -> Report | str:
    """Train the encoder unless it is finished, and report on it; or fill --text with the model of --run."""
    if config.run is not None:
        model, tokenizer = training.load_run(config.run)
        return "\n".join(filled(model, tokenizer, text, config.top_k) for text in config.text)
    data, length = MaskedCorpus(config, folder), config.encoder.context_length
    models.masked_lm(config.encoder.build_model(data.tokenizer.vocabulary_size))  # raises before training
    data.introduce(config.train, length, f"{config.steps:,} steps of {config.batch_size} x {length}")
    run = folder / f"encoder-seed{config.seed}"
    result = run_once(run, config.seed, lambda: train_one(run, config, data))
    plot_curves(folder, run, result["unigram_baseline"])
    plot_attention(folder, data.texts[0], *training.load_run(run))
    return Report(
        f"{data.corpus.name}: masked language modeling",
        verdict(result),
        table(result),
        ("model", "parameters", "masked tokens", "val_loss", "accuracy", "top-5 accuracy"),
        {"run": run.name, **result},
        NOTES,
        [
            "![Loss and accuracies during training](masked_lm.png)",
            "![Attention weights for the first of the texts below](attention.png)",
        ],
        {"Predictions of the encoder": result["predictions"]},
    )


main = experiment_main("masked_lm", MaskedLMConfig, SMOKE, pretrain, __doc__)

if __name__ == "__main__":
    main()
