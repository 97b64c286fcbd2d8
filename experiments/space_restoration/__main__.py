"""How well do models restore the spaces and capitals of a text, reading one side of a character or both?

    python -m experiments.space_restoration                                     # Python's help topics, offline
    python -m experiments.space_restoration --corpus shakespeare
    python -m experiments.space_restoration --smoke                             # tiny sizes, takes seconds
    python -m experiments.space_restoration --run logs/space_restoration/20260101-120000/bilstm-seed0 --text "tobeor"

Time: 6 to 9 minutes on 2 cores.

Every character other than white space gets one of four tags: space before it or not, capital or not. (A line break
counts as a space, since the letters do not determine it.) Three taggers of equal size are trained on the same windows.

Expected result on the validation split of pydoc: the LSTM, which reads the left context only, has an F1 of 0.93 for
spaces and restores 80 % of the words exactly; the BiLSTM, which reads both sides, 0.96 and 88 %; the encoder, which
reads both sides but has to learn the relative positions, 0.92 and 77 %, and is still improving.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import keras
import numpy as np
import tyro

from experiments.frame import report
from experiments.frame.corpora import print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.space_restoration import models as space_restoration_models
from experiments.space_restoration import report as space_restoration_report
from experiments.space_restoration.scores import Tagger, Validator, tag_metrics
from keras_seq import training
from keras_seq.data import ArrayBatches, load_corpus
from keras_seq.data.synthetic.spacing_task import NUM_TAGS, strip_spacing
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import checksummed_json
from keras_seq.training.run_folder import load_run

MODELS = ("lstm", "bilstm", "encoder", "bert")
OVERLAP = 4  # training windows that contain each character, per epoch


@dataclasses.dataclass(frozen=True)
class TrainConfig(training.TrainConfig):
    """Training options with more frequent validations."""

    validate_every: int = 75
    """Steps between two validations, each with a restored passage."""


@dataclasses.dataclass(frozen=True)
class SpaceRestorationConfig:
    """Train taggers that restore spaces and capitals, and compare them."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file.
    """
    models: tuple[Literal[MODELS], ...] = ("lstm", "bilstm", "encoder")
    """Taggers to train, in this order: lstm reads the left context, the others both sides."""
    characters: int = 1_200_000
    """Characters other than white space that each model is trained on, over all epochs."""
    batch_size: int = 16
    """Windows in a batch."""
    sequence_length: int = 128
    """Sequence length T of the windows, in characters."""
    seed: int = 0
    """Random seed of the weights, batches and dropout."""
    run: str | None = None
    """Folder of a finished run whose model restores --text; nothing is trained."""
    text: str | None = None
    """Text to restore with --run."""
    log_dir: str = "logs"
    """Folder for logs; the runs are written to LOG_DIR/space_restoration/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/space_restoration/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    lstm: space_restoration_models.LSTMConfig = dataclasses.field(default_factory=space_restoration_models.LSTMConfig)
    bilstm: space_restoration_models.BiLSTMConfig = dataclasses.field(
        default_factory=space_restoration_models.BiLSTMConfig
    )
    encoder: space_restoration_models.EncoderConfig = dataclasses.field(
        default_factory=space_restoration_models.EncoderConfig
    )
    bert: space_restoration_models.BertConfig = dataclasses.field(default_factory=space_restoration_models.BertConfig)

    def __post_init__(self):
        check_options(self, characters=1, batch_size=1, sequence_length=OVERLAP)
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(MODELS)}.")
        if self.bert.context_length < self.sequence_length:
            raise ValueError(
                f"--bert.context-length {self.bert.context_length}: expected at least the "
                f"--sequence-length {self.sequence_length}."
            )
        if (self.run is None) != (self.text is None):
            raise ValueError(
                "--run and --text go together: expected the folder of a finished run and a text to restore."
            )

    @property
    def steps(self) -> int:
        """Return the number of training steps that `characters` take."""
        return -(-self.characters // (self.batch_size * self.sequence_length))


def smoke_config(config: SpaceRestorationConfig) -> SpaceRestorationConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        characters=20 * 8 * 16,
        batch_size=8,
        sequence_length=16,
        train=dataclasses.replace(config.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10),
        lstm=space_restoration_models.LSTMConfig(embedding_dim=8, units=30),
        bilstm=space_restoration_models.BiLSTMConfig(embedding_dim=8, units=20),
        encoder=space_restoration_models.EncoderConfig(
            embedding_dim=20, num_layers=1, num_heads=2, feed_forward_dim=40
        ),
        bert=space_restoration_models.BertConfig(embedding_dim=20, num_layers=1, num_heads=2, feed_forward_dim=40),
    )


def restore_text(config: SpaceRestorationConfig) -> str:
    """Restore --text with the model of --run."""
    run = pathlib.Path(config.run)
    model, tokenizer = load_run(run)
    experiment = checksummed_json.read(run / "config.json")["experiment"]
    return Tagger(model, tokenizer, experiment["sequence_length"])(config.text)


def batches(config: SpaceRestorationConfig, tagger: Tagger, characters: str, tags) -> ArrayBatches:
    """Return training batches of overlapping windows of characters, with their tags.

    Args:
        config: Options of the experiment.
        tagger: The tagger, for its ids.
        characters: Training text without spaces and capitals, N characters.
        tags: Their tags `[N]`.
    """
    stride = config.sequence_length // OVERLAP
    windows = [
        np.lib.stride_tricks.sliding_window_view(values, config.sequence_length)[::stride]
        for values in (tagger.ids(characters), tags)
    ]
    return ArrayBatches(tuple(windows), config.batch_size, config.seed)


def train_one(
    folder: pathlib.Path,
    config: SpaceRestorationConfig,
    name: str,
    corpus,
    tokenizer,
    train_text: str,
    validation_text: str,
) -> dict:
    """Train and score one model.

    Args:
        folder: Folder of the run.
        config: Options of the experiment.
        name: One of `MODELS`.
        corpus: The corpus, recorded in config.json.
        tokenizer: Tokenizer of the characters.
        train_text: Training split.
        validation_text: Validation split.

    Returns:
        The content of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model_config = getattr(config, name)
    model = model_config.build_model(tokenizer.vocabulary_size + 1, dtype=config.train.dtype_policy)
    tagger = Tagger(model, tokenizer, config.sequence_length)
    examples = batches(config, tagger, *strip_spacing(train_text))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    train_config = {**dataclasses.asdict(config.train), **config.train.resolved(model)}
    corpus_info = {"name": corpus.name, "sha256": corpus.sha256}
    print(f"\n{folder.name}, {model.count_params():,} parameters")
    validator = final_validator = Validator(tagger, validation_text)
    part = config.train.validated_part(validation_text, config.sequence_length)
    if len(part) < len(validation_text):
        validator = Validator(tagger, part)
    tokens_per_step = config.batch_size * config.sequence_length
    training.compile_model(model, config.train, config.steps, tokens_per_step=tokens_per_step)
    logger, summaries = training.fit_resumable(
        folder,
        model,
        examples.dataset,
        tokens_per_step,
        config.steps,
        config.train,
        validator,
        run_config(config, name, model_config, train_config, seed=config.seed, corpus=corpus_info),
        folder.name,
        final_validate_fn=None if validator is final_validator else final_validator,
        final_duration_ratio=len(validation_text) / len(part),
    )
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "train_characters": logger.step * config.batch_size * config.sequence_length,
        "train_seconds": logger.seconds,
        "train_loss_per_character": logger.loss,
        "val_loss": summaries.scalars["val_loss"],
        **final_validator.metrics,
        "sample": summaries.texts["sample"],
    }
    training.write_result(folder, result)
    return result


def no_tags_baseline(train_tags, tags) -> dict:
    """Score the prediction of no spaces and no capitals, with the loss of the unigram frequencies of the tags.

    Args:
        train_tags: Tags of the training split, which are counted.
        tags: Tags of the validation split, which are scored.
    """
    counts = np.bincount(train_tags, minlength=NUM_TAGS) + 1
    loss = -np.log(counts / counts.sum())[tags].mean()
    return {"model": "no tags", "val_loss": float(loss), **tag_metrics(tags, np.zeros_like(tags))}


def compare(config: SpaceRestorationConfig, folder: pathlib.Path) -> list[dict]:
    """Train the models that are not finished yet, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the experiment.

    Returns:
        The rows of the report.

    Raises:
        ValueError: A split of the corpus is too short.
    """
    corpus = load_corpus(config.corpus)
    check_same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    (train_characters, train_tags), (validation_characters, tags) = (
        strip_spacing(train_text),
        strip_spacing(validation_text),
    )
    min_length = config.sequence_length + (config.batch_size - 1) * (config.sequence_length // OVERLAP)
    for split, count, needed in (
        ("training", len(train_characters), min_length),
        ("validation", len(validation_characters), config.sequence_length),
    ):
        if count < needed:
            raise ValueError(
                f"The {split} split of the corpus {corpus.name!r} has {count} characters other than white space; "
                f"expected at least {needed}: give a longer text, or a smaller --sequence-length or --batch-size."
            )
    tokenizer = CharacterTokenizer.from_text(train_characters, oov_token="[UNK]")
    counts = [getattr(config, name).build_model(tokenizer.vocabulary_size + 1).count_params() for name in config.models]
    print(
        f"{corpus.name}: {len(train_characters):,} training characters, {len(validation_characters):,} validation "
        f"characters, {len(tokenizer.characters)} distinct; {config.steps:,} steps of {config.batch_size} x "
        f"{config.sequence_length}{report.validation_note(config.train, validation_text, config.sequence_length)}"
    )
    print_overlap_note(train_text, validation_text)
    print(report.sizes(counts))
    rows = [no_tags_baseline(train_tags, tags)]
    for name in config.models:
        run = folder / f"{name}-seed{config.seed}"
        result = training.load_result(run)
        result = result or train_one(run, config, name, corpus, tokenizer, train_text, validation_text)
        rows.append({"model": name, "run": run.name, **result})
    space_restoration_report.write_report(folder, corpus.name, rows)
    return rows


@exit_with_message("experiments.space_restoration")
def main(arguments: list[str] | None = None):
    """Run the experiment from the command line."""
    with start_or_resume(SpaceRestorationConfig, "space_restoration", __doc__, arguments, smoke_config) as (
        config,
        folder,
    ):
        if config.run is not None:
            print(restore_text(config))
        else:
            print(space_restoration_report.final_message(folder, compare(config, folder)))


if __name__ == "__main__":
    main()
