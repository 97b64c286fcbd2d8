"""Hide tokens of a text and train an encoder to say what they were, as BERT was pre-trained (Devlin et al., 2019).

    python -m experiments.masked_lm                                # Python's help topics, offline
    python -m experiments.masked_lm --corpus shakespeare --text "To be or not to [MASK]." --text "Good [MASK], my lord."
    python -m experiments.masked_lm --run logs/masked_lm/20260101-120000/encoder-seed0 --text "Return the [MASK] of x."
    python -m experiments.masked_lm --smoke                        # seconds, tiny: does everything work?

Five to six minutes on 2 busy cores. To expect on pydoc, seed 0, of 2,391 tokens hidden in the validation split: 3.880
nats a token and 35.8 % right at the first guess, where the frequencies of tokens alone give 5.061 nats and 23.3 %. The
loss is still falling then; in sentences of one's own the guesses are hardly more than frequent words.
"""

import dataclasses
import pathlib
from typing import Annotated

import keras
import tyro

from experiments import masked_lm_report
from experiments.corpora import note_copied
from experiments.generate import load_run
from experiments.masked_lm_scores import HIDDEN, Look, Reader, by_frequency, check_text, masking, pairs
from experiments.options import check_options
from experiments.report import validated
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import models, training
from keras_seq.data import ArrayBatches, load_corpus
from keras_seq.data.step_dataset import step_dataset
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.saving import save_model
from keras_seq.tokenizers import WordPieceTokenizer

OVERLAP = 4  # each token stands in so many rows, in different places
SENTENCES = {
    "pydoc": (
        "If the object is not callable, a [MASK] is raised.",
        "The [MASK] statement is used for conditional execution.",
        "Return the [MASK] of the sequence.",
    ),
    "shakespeare": ("To be or not to [MASK].", "Good [MASK], my lord.", "What is thy [MASK], sir?"),
}


@dataclasses.dataclass(frozen=True)
class Encoder(models.BertConfig):
    """`keras_seq.models.Encoder`, as wide and long as is trained in minutes."""

    context: int = 64
    """T, the tokens in a row, [CLS] and both [SEP] among them."""


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, at a rate that the normalisation behind each part can bear."""

    learning_rate: float | None = 0.005
    """The highest one."""


@dataclasses.dataclass(frozen=True)
class MaskedLM:
    """Pre-train an encoder by hiding tokens, or fill in what a text hides."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    pieces: int = 2000
    """The most ids of the WordPiece tokenizer, which is learned from the training split."""
    tokens: int = 1_024_000
    """Tokens that the encoder is trained on, hidden or not, passes counted again."""
    batch_size: int = 8
    """Rows in a batch."""
    fraction: float = 0.15
    """The probability with which a token is hidden."""
    text: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A text that says [MASK] somewhere, for the encoder to fill in; may be given several times."""
    top: int = 5
    """How many fillings of --text are shown with --run."""
    run: str | None = None
    """The folder of a finished run that is to fill in --text; nothing is trained then."""
    seed: int = 0
    """Of weights, rows, hiding and dropout."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/masked_lm/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/masked_lm/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)
    encoder: Encoder = dataclasses.field(default_factory=Encoder)

    def __post_init__(self):
        check_options(self, pieces=1, tokens=1, batch_size=1, top=1)
        if not 0 < self.fraction <= 1:
            raise ValueError(f"--fraction {self.fraction}: expected a probability above 0 and at most 1.")
        for name, least in (("context", 8), ("num_segments", 2)):
            if getattr(self.encoder, name) < least:
                raise ValueError(
                    f"--encoder.{name.replace('_', '-')} {getattr(self.encoder, name)}: expected at least {least}."
                )
        if self.run is not None and not self.text:
            raise ValueError(f"--run {self.run}: expected a --text to fill in, such as 'To be or not to {HIDDEN}.'.")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.encoder.context))


def tiny(settings: MaskedLM) -> MaskedLM:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        pieces=400,
        tokens=20 * 8 * 32,
        batch_size=8,
        train=dataclasses.replace(settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10),
        encoder=Encoder(embedding_dim=16, num_layers=2, num_heads=2, feed_forward_dim=32, context_length=32),
    )


def filled(settings: MaskedLM) -> str:
    """--text, as the encoder of --run fills it in."""
    reader = Reader(*load_run(pathlib.Path(settings.run)))
    return "\n".join(reader.said(text, settings.top) for text in settings.text)


def sentences(settings: MaskedLM, pieces, held_out) -> tuple[str, ...]:
    """What is to be filled in: --text, or sentences that suit the corpus, or some of the held-out text."""
    texts = settings.text or SENTENCES.get(settings.corpus)
    if not texts:
        room = (settings.encoder.context - 3) // 2
        starts = range(0, min(len(held_out) - room, 3 * room) + 1, room)
        both = [(held_out[n : n + room // 2], held_out[n + room // 2 + 1 : n + room]) for n in starts]
        texts = tuple(f"{pieces.decode(before)} {HIDDEN} {pieces.decode(after)}" for before, after in both)
    for text in texts:
        check_text(text, pieces, settings.encoder.context)
    return texts


def train_one(folder, settings: MaskedLM, corpus, pieces, train_ids, rows, part, texts) -> dict:
    """The one run, scored on the rows of `part` while it trains. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    model = models.masked_lm(settings.encoder.build_model(pieces.vocabulary_size, dtype=settings.train.dtype_policy))
    length, hiding = settings.encoder.context, masking(pieces, settings.fraction, settings.seed)
    examples = ArrayBatches(
        pairs(train_ids, length, length // OVERLAP, settings.seed), settings.batch_size, settings.seed
    )

    def at(step):
        batch = examples.batch(step)
        masked, targets, weights = hiding.batch(step, batch["token_ids"])
        return {"token_ids": masked, "segment_ids": batch["segment_ids"]}, targets, weights

    reader = Reader(model, pieces)
    # Another seed than any of training: the same tokens are hidden at every validation.
    whole = diagnostic = Look(reader, rows, masking(pieces, settings.fraction, settings.seed + 1), texts)
    times = len(rows["token_ids"]) / len(part["token_ids"])
    if times > 1:
        diagnostic = Look(reader, part, masking(pieces, settings.fraction, settings.seed + 1), texts)
    used = {**dataclasses.asdict(settings.train), **settings.train.resolved(model)}
    of_corpus = {"name": corpus.name, "sha256": corpus.sha256}
    tokens_per_step = settings.batch_size * length
    loss = TokenCrossEntropy()
    training.compile_model(model, settings.train, settings.steps, loss, tokens_per_step=tokens_per_step)
    record, summaries = training.fit_resumable(
        folder,
        model,
        lambda first, last: step_dataset(at, first, last),
        tokens_per_step,
        settings.steps,
        settings.train,
        diagnostic,
        config(settings, "encoder", settings.encoder, used, seed=settings.seed, corpus=of_corpus),
        folder.name,
        final_validate_fn=None if diagnostic is whole else whole,
        final_duration_ratio=times,
    )
    pieces.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "train_tokens": record.step * settings.batch_size * length,
        "train_seconds": record.seconds,
        "train_loss": record.loss,
        "hidden_tokens": int(whole.hidden.sum()),
        **summaries.scalars,
        "by_frequency": by_frequency(train_ids, whole.targets[whole.hidden], pieces.vocabulary_size),
        "hidden": summaries.texts["hidden"],
    }
    masked_lm_report.draw_attention(folder.parent / "attention.png", *reader.attention(texts[0]))
    training.write_result(folder, result)
    return result


def pretrain(settings: MaskedLM, folder: pathlib.Path) -> dict:
    """Trains the encoder unless `folder` has it trained already, then writes the report. Returns its result."""
    corpus = load_corpus(settings.corpus)
    same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    pieces = WordPieceTokenizer.from_text(train_text, vocabulary_size=settings.pieces)
    train_ids, held_out = (pieces.encode(side).numpy() for side in (train_text, validation_text))
    part = pieces.encode(settings.train.validated_part(validation_text)).numpy()
    length = settings.encoder.context
    least = length + (settings.batch_size - 1) * (length // OVERLAP)
    for side, ids, needed in (("training", train_ids, least), ("validation", held_out, length)):
        if len(ids) < needed:
            raise ValueError(
                f"The {side} side of the corpus {corpus.name!r} has {len(ids)} tokens, fewer than the {needed} needed: "
                "give a longer text, or a smaller --encoder.context or --batch-size."
            )
    if len(part) < length:
        raise ValueError(
            f"--train.validation-characters {settings.train.validation_characters}: {len(part)} tokens, fewer than the "
            f"{length} of a row; expected more characters."
        )
    texts = sentences(settings, pieces, held_out)
    models.masked_lm(settings.encoder.build_model(pieces.vocabulary_size))  # what cannot be built is an error now
    print(
        f"{corpus.name}: {len(train_ids):,} tokens to train on, {len(held_out):,} to validate on, {pieces.vocabulary_size:,} "
        f"pieces; {settings.steps:,} steps of {settings.batch_size} x {length}"
        f"{validated(settings.train, validation_text, length)}"
    )
    note_copied(train_text, validation_text)
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / f"encoder-seed{settings.seed}"
    rows = [pairs(ids, length, length - 3, settings.seed) for ids in (held_out, part)]
    result = training.load_result(run) or train_one(run, settings, corpus, pieces, train_ids, *rows, texts)
    masked_lm_report.write(folder, run, corpus.name, result)
    return result


@one_sentence("experiments.masked_lm")
def main(arguments=None):
    """The command line."""
    with begin(MaskedLM, "masked_lm", __doc__, arguments, tiny) as (settings, folder):
        if settings.run is not None:
            print(filled(settings))
        else:
            print(masked_lm_report.closing(folder, pretrain(settings, folder)))


if __name__ == "__main__":
    main()
