"""Put back the spaces and capitals that a clean-up removed, and see what it is worth to read both sides.

    python -m experiments.respace                                     # Python's help topics, offline
    python -m experiments.respace --corpus shakespeare
    python -m experiments.respace --smoke                             # seconds, tiny: does everything work?
    python -m experiments.respace --run logs/respace/20260101-120000/bilstm-seed0 --text "tobeornottobe"

Every character that is no white space gets a tag: a space before it or not, a capital or not (a line break counts as a
space: no letter tells of it). Three taggers of one size see the same windows. 6 to 9 minutes on 2 cores. To expect on
pydoc, of the validation split: the LSTM, which knows only what stands before, finds spaces with an F1 of 0.93 and has
80 % of the words exactly right; the BiLSTM, which reads both ways, 0.96 and 88 %; the encoder, which sees both sides
too but has to learn first where its neighbours stand, 0.92 and 77 %, and is still rising.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import keras
import numpy as np
import tyro

from experiments import report, respace_models, respace_report
from experiments.corpora import note_copied
from experiments.generate import load_run
from experiments.options import check_options
from experiments.respace_scores import Look, Reader, scores
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.data import ArrayBatches, load_corpus
from keras_seq.data.synthetic.spacing_task import NUM_TAGS, strip_spacing
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import checksummed_json

MODELS = ("lstm", "bilstm", "encoder", "bert")
OVERLAP = 4  # each character stands in so many windows of a pass, at different places


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, validated more often."""

    validate_every: int = 75
    """Steps between two passes over the validation split, each with a passage restored."""


@dataclasses.dataclass(frozen=True)
class Respace:
    """Train taggers that put spaces and capitals back, and compare them."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    models: tuple[Literal[MODELS], ...] = ("lstm", "bilstm", "encoder")
    """Which taggers, in this order: lstm reads forwards only, the others see both sides."""
    characters: int = 1_200_000
    """Characters without white space that each model is trained on, passes counted again."""
    batch_size: int = 16
    """Rows in a batch."""
    length: int = 128
    """Characters in a row."""
    seed: int = 0
    """Of weights, batches and dropout."""
    run: str | None = None
    """The folder of a finished run, whose model is to restore --text; nothing is trained then."""
    text: str | None = None
    """A text of your own to restore."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/respace/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/respace/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)
    lstm: respace_models.LSTM = dataclasses.field(default_factory=respace_models.LSTM)
    bilstm: respace_models.BiLSTM = dataclasses.field(default_factory=respace_models.BiLSTM)
    encoder: respace_models.Encoder = dataclasses.field(default_factory=respace_models.Encoder)
    bert: respace_models.Bert = dataclasses.field(default_factory=respace_models.Bert)

    def __post_init__(self):
        check_options(self, characters=1, batch_size=1, length=OVERLAP)
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(MODELS)}.")
        if self.bert.context < self.length:
            raise ValueError(f"--bert.context {self.bert.context}: expected at least the --length {self.length}.")
        if (self.run is None) != (self.text is None):
            raise ValueError("--run and --text go together: expected the folder of a finished run, and a text for it.")

    @property
    def steps(self) -> int:
        """Batches that hold the characters."""
        return -(-self.characters // (self.batch_size * self.length))


def tiny(settings: Respace) -> Respace:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        characters=20 * 8 * 16,
        batch_size=8,
        length=16,
        train=dataclasses.replace(settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10),
        lstm=respace_models.LSTM(embedding_dim=8, units=30),
        bilstm=respace_models.BiLSTM(embedding_dim=8, units=20),
        encoder=respace_models.Encoder(embedding_dim=20, num_layers=1, num_heads=2, feed_forward_dim=40),
        bert=respace_models.Bert(embedding_dim=20, num_layers=1, num_heads=2, feed_forward_dim=40),
    )


def restored(settings: Respace) -> str:
    """--text, as the model of --run puts it."""
    run = pathlib.Path(settings.run)
    model, vocabulary = load_run(run)
    experiment = checksummed_json.read(run / "config.json")["experiment"]
    return Reader(model, vocabulary, experiment["length"])(settings.text)


def batches(settings: Respace, reader: Reader, characters, tags) -> ArrayBatches:
    """Windows of characters and of their tags, which overlap."""
    move = settings.length // OVERLAP
    rows = [
        np.lib.stride_tricks.sliding_window_view(values, settings.length)[::move]
        for values in (reader.ids(characters), tags)
    ]
    return ArrayBatches(tuple(rows), settings.batch_size, settings.seed)


def train_one(folder, settings: Respace, name, corpus, vocabulary, train_text, validation_text):
    """One run: one model. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    definition = getattr(settings, name)
    model = definition.build_model(vocabulary.vocabulary_size + 1, dtype=settings.train.dtype_policy)
    reader = Reader(model, vocabulary, settings.length)
    examples = batches(settings, reader, *strip_spacing(train_text))
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(folder / "tokenizer.json")
    train = {**dataclasses.asdict(settings.train), **settings.train.resolved(model)}
    of_corpus = {"name": corpus.name, "sha256": corpus.sha256}
    print(f"\n{folder.name}, {model.count_params():,} parameters")
    whole = diagnostic = Look(reader, validation_text)
    part = settings.train.validated_part(validation_text, settings.length)
    if len(part) < len(validation_text):
        diagnostic = Look(reader, part)
    tokens_per_step = settings.batch_size * settings.length
    training.compile_model(model, settings.train, settings.steps, tokens_per_step=tokens_per_step)
    record, summaries = training.fit_resumable(
        folder,
        model,
        examples.dataset,
        tokens_per_step,
        settings.steps,
        settings.train,
        diagnostic,
        config(settings, name, definition, train, seed=settings.seed, corpus=of_corpus),
        folder.name,
        final_validate_fn=None if diagnostic is whole else whole,
        final_duration_ratio=len(validation_text) / len(part),
    )
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "training_characters": record.step * settings.batch_size * settings.length,
        "train_seconds": record.seconds,
        "train_loss_per_character": record.loss,
        "loss_per_character": summaries.scalars["val_loss"],
        **whole.scores,
        "sample": summaries.texts["sample"],
    }
    training.write_result(folder, result)
    return result


def untagged(train_tags, tags) -> dict:
    """What it scores to tag nothing, and to know of the tags how frequent each is."""
    counts = np.bincount(train_tags, minlength=NUM_TAGS) + 1
    nats = -np.log(counts / counts.sum())[tags].mean()
    return {"model": "no tags", "loss_per_character": float(nats), **scores(tags, np.zeros_like(tags))}


def compare(settings: Respace, folder: pathlib.Path):
    """Trains all that is not yet trained in `folder`, then writes the comparison. Returns its rows."""
    corpus = load_corpus(settings.corpus)
    same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    (characters, train_tags), (held_out, tags) = strip_spacing(train_text), strip_spacing(validation_text)
    least = settings.length + (settings.batch_size - 1) * (settings.length // OVERLAP)
    for side, count, needed in (("training", len(characters), least), ("validation", len(held_out), settings.length)):
        if count < needed:
            raise ValueError(
                f"The {side} side of the corpus {corpus.name!r} has {count} characters that are no white space, fewer "
                f"than the {needed} needed: give a longer text, or a smaller --length or --batch-size."
            )
    vocabulary = CharacterTokenizer.from_text(characters, oov_token="[UNK]")
    sizes = [
        getattr(settings, name).build_model(vocabulary.vocabulary_size + 1).count_params() for name in settings.models
    ]
    print(
        f"{corpus.name}: {len(characters):,} characters to train on, {len(held_out):,} to validate on, "
        f"{len(vocabulary.characters)} distinct; {settings.steps:,} steps of {settings.batch_size} x {settings.length}"
        f"{report.validated(settings.train, validation_text, settings.length)}"
    )
    note_copied(train_text, validation_text)
    print(report.sizes(sizes))
    rows = [untagged(train_tags, tags)]
    for name in settings.models:
        run = folder / f"{name}-seed{settings.seed}"
        result = training.load_result(run)
        result = result or train_one(run, settings, name, corpus, vocabulary, train_text, validation_text)
        rows.append({"model": name, "run": run.name, **result})
    respace_report.write(folder, corpus.name, rows)
    return rows


@one_sentence("experiments.respace")
def main(arguments=None):
    """The command line."""
    with begin(Respace, "respace", __doc__, arguments, tiny) as (settings, folder):
        if settings.run is not None:
            print(restored(settings))
        else:
            print(respace_report.closing(folder, compare(settings, folder)))


if __name__ == "__main__":
    main()
