"""How well do models restore the spaces and capitals of a text, reading one side of a character or both?

    python -m experiments.space_restoration                                     # Python's help topics, offline
    python -m experiments.space_restoration --corpus shakespeare
    python -m experiments.space_restoration --smoke                             # tiny sizes, takes seconds
    python -m experiments.space_restoration --run logs/space_restoration/20260101-120000-pydoc/bilstm-seed0 --text tobe

Time: 6 to 9 minutes on 2 cores.

Every character other than white space gets one of four tags: space before it or not (a line break is one), capital or
not. Expected on pydoc: the BiLSTM, which reads both sides, restores 86 % of the words (three seeds), the LSTM 80 % and
the encoder 77 % (one seed). `--models bilstm bilstm_crf`: a CRF on top has 86.5 %; both 89 % after twice the training.
"""

import dataclasses
import functools
import pathlib
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Literal

import keras
import numpy as np
from keras import ops

from experiments.common.command import experiment_main
from experiments.common.tasks import run_task
from keras_seq import checks, layers, training
from keras_seq.commands import options
from keras_seq.data import ArrayBatches
from keras_seq.data.synthetic.spacing_task import CAPITAL, NUM_TAGS, SPACE, collapse_whitespace, restore, strip_spacing
from keras_seq.evaluation import CRFLoss, losses
from keras_seq.models import BertConfig, BiLSTMConfig, token_classifier
from keras_seq.ops.compiled import compiled
from keras_seq.ops.tensor_checks import at_least_float32
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, compare_sizes, percent_interval, without_texts
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.tracking.tracker import track_progress


@dataclasses.dataclass(frozen=True)
class TaggerConfig:
    """Config of a tagger of ids `[B, T]`, 0 is padding: embeddings, `features` of them, logits `[B, T, 4]` of tags."""

    embedding_dim: int = 64
    """D, the width of the character embeddings."""
    dropout: float = 0.1
    """Fraction of each layer's output, and of attention weights, that is dropped in training."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            check = checks.fraction if field.name == "dropout" else checks.positive_integer
            check(field.name, getattr(self, field.name))

    def build_model(self, vocabulary_size: int, dtype=None) -> keras.Model:
        ids = keras.Input((None,), dtype="int32", name="ids")
        x = keras.layers.Embedding(vocabulary_size, self.embedding_dim, mask_zero=True, dtype=dtype)(ids)
        x = self.features(x, dtype)
        logits = keras.layers.Dense(NUM_TAGS, dtype=dtype, name="head")(x)
        logits = keras.layers.Activation("linear", dtype=at_least_float32(logits.dtype), name="logits")(logits)
        return keras.Model(ids, logits)


@dataclasses.dataclass(frozen=True)
class LSTMConfig(TaggerConfig):
    """Config of the causal LSTM tagger."""

    units: int = 304
    """Width of the LSTM's output."""

    def features(self, x, dtype):
        x = layers.LSTM(self.units, return_sequences=True, dtype=dtype, name="lstm")(x)
        return keras.layers.Dropout(self.dropout, dtype=dtype, name="dropout")(x)


@dataclasses.dataclass(frozen=True)
class EncoderConfig(TaggerConfig):
    """Config of a bidirectional Transformer: pre-norm blocks with rotary positions, initialized as the identity."""

    embedding_dim: int = 96
    """D, the width of the residual stream."""
    num_layers: int = 4
    """Number of blocks."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 384
    """Width of the hidden layer of each block's feed-forward network."""

    def features(self, x, dtype):
        options = {"use_bias": False, "use_qk_norm": True, "residual_initializer": "zeros", "dropout": self.dropout}
        for n in range(self.num_layers):
            options |= {"positions": layers.RotaryPositions(), "dtype": dtype, "name": f"block_{n}"}
            x = layers.TransformerBlock(self.num_heads, self.feed_forward_dim, **options)(x)
        return keras.layers.LayerNormalization(center=False, dtype=dtype, name="normalization")(x)


MODELS = ("lstm", "bilstm", "bilstm_crf", "encoder", "bert")
OVERLAP = 4  # training windows that contain each character, per epoch


@dataclasses.dataclass(frozen=True)
class SpaceRestorationConfig:
    """Train taggers that restore spaces and capitals, and compare them."""

    corpus: options.CorpusName = "pydoc"
    models: tuple[Literal[MODELS], ...] = ("lstm", "bilstm", "encoder")
    """Taggers to train, in this order: lstm reads the left context, the others both sides."""
    characters: int = 1_200_000
    """Characters other than white space that each model is trained on, over all epochs."""
    batch_size: options.BatchSize = 16
    sequence_length: int = 128
    """Sequence length T of the windows, in characters."""
    seed: options.Seed = 0
    run: str | None = None
    """Folder of a finished run whose model restores --text; nothing is trained."""
    text: str | None = None
    """Text to restore with --run."""
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = training.TrainConfig(validate_every=75)
    lstm: LSTMConfig = LSTMConfig()
    bilstm: BiLSTMConfig = BiLSTMConfig(NUM_TAGS, units=204, dropout=0.1)
    bilstm_crf: BiLSTMConfig = BiLSTMConfig(NUM_TAGS, units=204, dropout=0.1, crf=True)
    encoder: EncoderConfig = EncoderConfig()
    bert: BertConfig = BertConfig(96, feed_forward_dim=368, context_length=128, num_segments=1)

    def __post_init__(self):
        options.check_options(self, characters=1, batch_size=1, sequence_length=OVERLAP)
        options.check_unique("--models", self.models)
        options.check_together("--run", self.run, "--text", self.text)
        if (length := self.bert.context_length) < self.sequence_length:
            raise ValueError(f"--bert.context-length {length}: expected at least the --sequence-length.")
        if wrong := {self.bilstm.num_tags, self.bilstm_crf.num_tags} - {NUM_TAGS}:
            raise ValueError(f"num-tags {wrong.pop()} of a BiLSTM: expected {NUM_TAGS}, as spaces and capitals.")

    def options_without_effect(self) -> dict[str, str]:
        return {} if self.run is None else options.options_of_a_training(self)

    @property
    def steps(self) -> int:
        return -(-self.characters // (self.batch_size * self.sequence_length))


SMOKE = {
    **{"characters": 20 * 8 * 16, "batch_size": 8, "sequence_length": 16, "train": options.SMOKE_TRAIN},
    "lstm": {"embedding_dim": 8, "units": 30},
    **{name: {"embedding_dim": 8, "units": 20} for name in ("bilstm", "bilstm_crf")},
    **{n: {"embedding_dim": 20, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 40} for n in ("encoder", "bert")},
}


def build_tagger(config, vocabulary_size: int, dtype=None) -> keras.Model:
    """Build the tagger of a config for V ids, padding included; for BERT all positions are in segment 0."""
    model = config.build_model(vocabulary_size, dtype)
    if not isinstance(config, BertConfig):
        return model
    ids = keras.Input((None,), dtype="int32", name="ids")
    inputs = {"token_ids": ids, "segment_ids": ops.zeros_like(ids)}
    return keras.Model(ids, token_classifier(model, NUM_TAGS, config.dropout)(inputs))


def encode(tokenizer: CharacterTokenizer, characters: str) -> np.ndarray:
    """Encode characters without spaces and capitals as int32 ids `[N]`; 0 is padding."""
    return tokenizer.encode(characters) + 1


class SpacingText(SplitCorpus):
    """A corpus as ids of characters without spaces and capitals, and `batches` of windows of them with their tags."""

    def __init__(self, settings: SpaceRestorationConfig, folder: pathlib.Path):
        new = functools.partial(CharacterTokenizer.from_text, oov_token="[UNK]")
        super().__init__(settings.corpus, folder, tokenizer=lambda _, train_text: new(strip_spacing(train_text)[0]))
        self.num_ids = self.tokenizer.vocabulary_size + 1  # 0 is padding
        length, stride = settings.sequence_length, settings.sequence_length // OVERLAP
        batch = length + (settings.batch_size - 1) * stride
        for split, ids, expected in (("training", self.train, batch), ("validation", self.validation, length)):
            if len(ids) < expected:
                counts = f"{len(ids)} characters other than white space; expected at least {expected}"
                remedy = "give a longer text, or a smaller --sequence-length or --batch-size"
                raise ValueError(f"--corpus {settings.corpus}: the {split} split has {counts}: {remedy}.")
        values = (self.train, strip_spacing(self.train_text)[1])
        windows = tuple(np.lib.stride_tricks.sliding_window_view(each, length)[::stride] for each in values)
        self.batches = ArrayBatches(windows, settings.batch_size, settings.seed)

    def encode(self, text: str) -> np.ndarray:
        return encode(self.tokenizer, strip_spacing(text)[0])


def overlapping_window_logits(logits_fn: Callable, ids: np.ndarray, length: int, batch_size: int = 64) -> np.ndarray:
    """Compute logits `[N, V]` of ids `[N]`, from those `[B, T, V]` of windows `[B, T]`, T the `length`.

    Window k reads [k S - S/2, k S + 3 S/2) and gives the logits of [k S, (k + 1) S), S = T // 2; padding is 0.
    """
    stride = length // 2
    margin, num_windows = stride // 2, -(-len(ids) // stride)
    padded = np.pad(ids, (margin, num_windows * stride + length - margin - len(ids)))
    x = np.lib.stride_tricks.sliding_window_view(padded, length)[::stride][:num_windows]
    first_rows = track_progress(range(0, num_windows, batch_size), len(ids))
    parts = [ops.convert_to_numpy(logits_fn(x[row : row + batch_size])) for row in first_rows]
    return np.concatenate(parts)[:, margin : margin + stride].reshape(num_windows * stride, -1)[: len(ids)]


class Tagger:
    """Restore the spaces and capitals of a text of any length with a model that is trained on windows of T ids."""

    def __init__(self, model: keras.Model, tokenizer: CharacterTokenizer, sequence_length: int):
        def tag_logits(ids):
            y = model(ids, training=False)
            return ops.log(ops.maximum(layers.crf_marginals(y), 1e-30)) if len(y.shape) == 4 else y

        window_logits = compiled(tag_logits, model, reduce_retracing=True)
        self.tokenizer = tokenizer
        self.logits = functools.partial(overlapping_window_logits, window_logits, length=sequence_length)

    def __call__(self, text: str) -> str:
        """Strip the spaces and capitals of a text, and insert those that the model predicts."""
        characters, _ = strip_spacing(text)
        if not characters:
            raise ValueError("The text is empty or white space only; expected letters to restore.")
        return restore(characters, self.logits(encode(self.tokenizer, characters)).argmax(-1)).lstrip()


def tag_scores(tags: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Compute precision, recall and F1 of spaces and of capitals, and the word accuracy, of tags `[N]`."""
    scores = {}
    for name, bit in (("space", SPACE), ("capital", CAPITAL)):
        actual, positive = (tags & bit).astype(bool), (predicted & bit).astype(bool)
        hits = np.sum(actual & positive)
        counts = {"precision": positive.sum(), "recall": actual.sum(), "f1": (positive.sum() + actual.sum()) / 2}
        scores |= {f"{name}_{score}": float(hits / count) if count else 0.0 for score, count in counts.items()}
    words = correct_words(tags, predicted)
    return {**scores, "word_accuracy": float(words.mean()), "words": len(words)}


def correct_words(tags: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return whether each word, a maximal run without white space, is exactly correct, bool `[words]`, of tags `[N]`.

    Its start, its end and all its capitals are predicted correctly, and no space inside it.
    """
    starts = np.union1d([0], np.flatnonzero(tags & SPACE))
    wrong = np.add.reduceat((tags != predicted).astype(int), starts)
    return (wrong == 0) & np.append((predicted[starts[1:]] & SPACE).astype(bool), True)  # a word ends where one starts


def no_tags(data: SpacingText) -> dict:
    """Score the prediction of no spaces and no capitals, with the loss of the tags' unigram frequencies in training."""
    train_tags, tags = (strip_spacing(text)[1] for text in (data.train_text, data.validation_text))
    counts = np.bincount(train_tags, minlength=NUM_TAGS) + 1
    loss = -np.log(counts / counts.sum())[tags].mean()
    return {"model": "no tags", "val_loss": float(loss), **tag_scores(tags, np.zeros_like(tags))}


class SpacingTask:
    """Spaces and capitals of a text for one model (`experiments.common.tasks.Task`)."""

    diagnostics = ()

    def __init__(self, model: keras.Model, settings: SpaceRestorationConfig, data: SpacingText):
        self.model, self.data, self.dataset = model, data, data.batches.dataset
        self.loss = CRFLoss() if len(model.output_shape) == 4 else None
        self.tokens_per_step = settings.batch_size * settings.sequence_length
        self.tagger = Tagger(model, data.tokenizer, settings.sequence_length)
        self.sample_texts = stretches(data.validation_text, settings)
        if self.sample_texts is not None:
            self.final_validate = functools.partial(self.validate, (data.validation_text,))

    def scores(self, *texts: str) -> dict[str, float]:
        tags = np.concatenate([strip_spacing(text)[1] for text in texts])
        logits = np.concatenate([self.tagger.logits(self.data.encode(text)) for text in texts])
        return {"val_loss": float(np.mean(losses.token_losses(logits, tags))), **tag_scores(tags, logits.argmax(-1))}

    def validate(self, texts: Sequence[str] | None = None) -> Summaries:
        """Score texts, by default the sample of the validation text, and restore a passage of the validation text."""
        text = self.data.validation_text
        scores = self.scores(*(texts or self.sample_texts or [text]))
        scalars = {name: scores[name] for name in ("val_loss", "space_f1", "capital_f1", "word_accuracy")}
        return Summaries(scalars, {"sample": self.sample(text)})

    def test(self) -> dict:
        return self.scores(text := self.data.validation_text) | {"sample": self.sample(text)}

    def sample(self, text: str) -> str:
        original, wrap = passage(text), textwrap.TextWrapper(76, break_on_hyphens=False)
        parts = {"original": original, "stripped": strip_spacing(original)[0], "restored": self.tagger(original)}
        return "\n\n".join(f"{name}:\n{wrap.fill(part)}" for name, part in parts.items())


def stretches(text: str, settings: SpaceRestorationConfig) -> list[str] | None:
    """Return the parts of a text that are scored during training, without the words cut at their ends; None for all."""
    ids = np.frombuffer(text.encode("utf-32-le"), "<u4").astype("int64")
    settings.train.validated_characters(len(text), settings.sequence_length)
    sample = training.validation_sample(ids, min(4 * settings.sequence_length, len(text) - 1), settings.train)
    if sample is None:
        return None
    parts = [text[start : start + sample.length] for start in sample.starts]
    return [" ".join(words[1:-1]) for part in parts if len(words := part.split()) > 2] or parts


def passage(text: str, length: int = 400) -> str:
    """Return the passage of this many characters with the most letters, starting at a sentence, to prefer prose."""
    text = collapse_whitespace(text).lstrip()
    starts = [0, *(match.end() for match in re.finditer(r"[.?!] ", text[:-length]))]
    return max((text[start : start + length] for start in starts), key=lambda part: sum(map(str.isalpha, part)))


def restore_text(run: pathlib.Path, text: str) -> str:
    """Restore the spaces and capitals of a text with the model of a finished run."""
    model, tokenizer = training.load_run(run)
    try:
        content = training.run_folder.read_checksummed(run / "config.json")["experiment"]
        saved = dataclass_from_dict(SpaceRestorationConfig, content)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"--run {run}: its config.json is not that of a run of this experiment.") from error
    return Tagger(model, tokenizer, saved.sequence_length)(text)


SHORT = {"P": "precision", "R": "recall", "F1": "f1"}
COLUMNS = {
    "model": "{model}".format_map,
    "parameters": lambda row: f"{row['parameters']:,}" if "parameters" in row else "-",
    "train seconds": lambda row: f"{row['train_seconds']:.0f}" if "train_seconds" in row else "-",
    "val_loss": "{val_loss:.4f}".format_map,
    **{f"space {short}": f"{{space_{score}:.3f}}".format_map for short, score in SHORT.items()},
    **{f"capital {short}": f"{{capital_{score}:.3f}}".format_map for short, score in SHORT.items()},
    "word accuracy": "{word_accuracy:.1%}".format_map,
}
NOTES = (
    "All scores are of the validation split. val_loss: nats per character other than white space. P, precision: the "
    "fraction of predicted spaces (or capitals) that are in the text. R, recall: the fraction of those in the text "
    "that are predicted. F1: their harmonic mean. word accuracy: the fraction of words whose start, end and capitals "
    "are correct and that have no space inside. no tags: none is predicted; its val_loss is that of the tags' unigram "
    "frequencies in training. bilstm_crf: val_loss and tags are those of the marginals."
)
STYLES = {"space_f1": {"marker": "o"}, "capital_f1": {"marker": "s", "linestyle": (0, (3, 1.5))}}
BARS = {"F1 of spaces": "space_f1", "F1 of capitals": "capital_f1", "word accuracy": "word_accuracy"}


def verdict(rows: Sequence[dict]) -> str:
    """Order the taggers by the words that they restore exactly."""
    rows = sorted(rows, key=lambda row: -row["word_accuracy"])
    shares = [f"{row['model']} {percent_interval(row['word_accuracy'], row['words'])}" for row in rows]
    spaces = ", ".join(f"{row['space_f1']:.3f}" for row in rows)
    exact = f"Words restored exactly, of {rows[0]['words']:,}: {', '.join(shares)}; one seed each. F1 of spaces"
    return f"{exact} in the same order: {spaces}."


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write space_restoration.png: F1 during training on the left, the final scores on the right."""
    figure, (curves, bars) = plots.subplots(1, 2, figsize=(11, 4.8))
    colors = plots.model_colors(rows)
    plots.task_curves(curves, folder, rows, STYLES)
    plots.accuracy_axis(curves)
    note = plots.sample_note(folder / rows[0]["run"])
    curves.set(xlabel="characters trained on", ylabel=f"F1{note} of the validation split")
    plots.legend(curves, colors, {"spaces": STYLES["space_f1"], "capitals": STYLES["capital_f1"]}, loc="best", ncols=2)
    plots.bars(bars, [*BARS], {row["model"]: [row[key] for key in BARS.values()] for row in rows}, colors)
    plots.save(figure, folder / "space_restoration.png")


def compare(settings: SpaceRestorationConfig, folder: pathlib.Path) -> Report | str:
    """Train the taggers that are not finished in `folder`, and report the comparison; or restore --text."""
    if settings.run is not None:
        return restore_text(pathlib.Path(settings.run), settings.text)
    data = SpacingText(settings, folder)
    counts = [build_tagger(getattr(settings, name), data.num_ids).count_params() for name in settings.models]
    plan = f"{settings.steps:,} steps of {settings.batch_size} x {settings.sequence_length}"
    data.introduce(settings.train, settings.sequence_length, plan)
    print(*filter(None, [compare_sizes(counts)]))

    def new_task(name):
        model = build_tagger(getattr(settings, name), data.num_ids, settings.train.dtype_policy)
        return SpacingTask(model, settings, data)

    saved = {"corpus": data.corpus, "tokenizer": data.tokenizer}
    rows = [run_task(folder, settings, name, getattr(settings, name), new_task, **saved) for name in settings.models]
    plot(folder, rows)
    none, samples = no_tags(data), [row["sample"].split("\n\n") for row in rows]
    restored = [f"by {row['model']}, {parts[-1]}" for row, parts in zip(rows, samples, strict=True)]
    return Report(
        f"{data.corpus.name}: restored spaces and capitals",
        verdict(rows),
        Table.of([none, *rows], COLUMNS),
        ("model", "parameters", "val_loss", "space F1", "capital F1", "word accuracy"),
        without_texts([none, *rows]),
        NOTES,
        ["![F1 of spaces and capitals during training, and at the end](space_restoration.png)"],
        {"A passage": "\n\n".join([*samples[0][:-1], *restored])},
    )


main = experiment_main("space_restoration", SpaceRestorationConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
