"""How close do models come to what is possible? Texts from sources whose entropy rate is known, in nats per id.

    markov     each id depends on the 2 before it, by a random table
    grammar    sentences such as (ab[hc]d{}a): which bracket opens decides, far later, which one closes

    python -m experiments.floors
    python -m experiments.floors --corpora grammar --models lstm mingru mamba transformer --tokens 4000000
    python -m experiments.floors --smoke                           # seconds, tiny: does everything work?

No loss can be below the floor but by chance: a model that is, by more than 4 standard errors, sees what it should not,
and the status is 1. Every id of the training text is seen once, so that nothing can be learned by heart.

Two minutes of processor time (5 min 28 s on 2 cores with other work). To expect, in warm nats per id: on the Markov
text, whose floor is 1.5546, the Transformer 1.5579 (0.21 % above), the LSTM 1.5610 (0.41 %), a 3-gram 1.5550; on the
grammar, 2.0729: LSTM 2.1152 (2.0 %), Transformer 2.1326 (2.9 %), a 4-gram 2.3483.
"""

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import keras
import tyro

from experiments import floors_report
from experiments.floors_scores import LETTERS, Corpus, Gap
from experiments.options import check_options
from experiments.runs import begin, config
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.data import SequentialWindows, StatefulWindows
from keras_seq.data.synthetic import MarkovChain, bracket_grammar
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries
from keras_seq.training.language_model import stateful_training_model

CORPORA = ("markov", "grammar")
ONE_LAYER = ("rnn", "gru", "lstm")


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, with the pace of a short run."""

    validate_every: int = 200
    """Steps between two passes over the validation text, each with a sample of text."""
    sample_length: int = 120
    """Ids in a sample of text."""


@dataclasses.dataclass(frozen=True)
class Floors:
    """Train models on texts whose entropy rate is known."""

    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer")
    """Which models, in this order."""
    corpora: tuple[Literal[CORPORA], ...] = CORPORA
    """Which texts, in this order."""
    symbols: int = 8
    """V of the Markov chain; as many letters stand between the brackets of the grammar."""
    order: int = 2
    """How many ids before it the next id of the Markov chain depends on."""
    concentration: float = 0.5
    """Of the Markov chain's table; the smaller, the more certain is the next id."""
    tokens: int = 819_200
    """Ids that each model is trained on, every one of them once."""
    validation: int = 50_000
    """Ids to validate on."""
    width: int = 64
    """D of the Transformer and others with a residual stream, of 2 blocks; a multiple of 8. LSTM, GRU and RNN have one
    layer of 2 D units."""
    batch_size: int = 16
    """Rows in a batch."""
    context: int = 64
    """Ids in a row: the length of backpropagation through time, and the Transformer's context."""
    seed: int = 0
    """Of the sources, the weights and the batches."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/floors/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/floors/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)

    def __post_init__(self):
        check_options(self, symbols=2, order=1, tokens=100, batch_size=1, context=1)
        check_options(self, validation=self.context + 1)
        if self.concentration <= 0:
            raise ValueError(f"--concentration {self.concentration}: expected a number above zero.")
        if self.symbols > 26:
            raise ValueError(f"--symbols {self.symbols}: expected at most 26.")
        if self.width < 8 or self.width % 8:
            raise ValueError(f"--width {self.width}: expected a multiple of 8.")
        for name in ("models", "corpora"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise ValueError(f"--{name} {' '.join(given)}: expected one or more, each once.")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.context))

    def definition(self, name):
        """What a model is built from."""
        kind = MODELS[name]
        if name in ONE_LAYER:
            return kind(embedding_dim=self.width // 2, units=2 * self.width)
        sizes = {
            "embedding_dim": self.width,
            "num_layers": 2,
            "units": 2 * self.width,
            "num_heads": 4,
            "feed_forward_dim": 4 * self.width,
            "context": self.context,
        }
        known = {field.name for field in dataclasses.fields(kind)}
        return kind(**{field: size for field, size in sizes.items() if field in known})

    def corpus(self, name) -> Corpus:
        """A text and its source."""
        sizes = (self.steps * self.batch_size * self.context + 1, self.validation)
        if name == "markov":
            chain = MarkovChain(self.symbols, self.order, self.seed, self.concentration)
            return Corpus(name, chain, LETTERS[: self.symbols], *sizes, order=self.order + 1)
        grammar = bracket_grammar(num_letters=self.symbols, seed=self.seed)
        return Corpus(name, grammar, grammar.terminals, *sizes)


def tiny(settings: Floors) -> Floors:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        symbols=3,
        order=1,
        tokens=12 * 8 * 16,
        validation=400,
        width=8,
        batch_size=8,
        context=16,
        train=dataclasses.replace(
            settings.train, warmup_steps=2, log_every=3, validate_every=6, checkpoint_every=6, sample_length=20
        ),
    )


class Look:
    """Scores a model on the beginning of the validation text, or on all of it, and has it write some."""

    def __init__(self, model, corpus: Corpus, settings: Floors):
        self.corpus, self.settings = corpus, settings
        self.evaluator, self.generator = Evaluator(model), TextGenerator(model, corpus.vocabulary)

    def __call__(self, ids) -> Summaries:
        warm = self.evaluator.streaming_token_losses(ids)
        gap = Gap.of(warm, self.corpus.true_nats[: len(ids) - 1])
        return Summaries(
            {
                "val_loss": self.evaluator.chunked_loss(ids, self.settings.context).mean,
                "val_loss_streaming": float(warm.mean(dtype="float64")),
                "excess_loss": gap.above,
                "standard_error": gap.standard_error,
            },
            {"sample": self.generator(self.corpus.vocabulary.decode(ids[:1]), self.settings.train.sample_length)},
        )


def train_one(folder, settings: Floors, name, corpus: Corpus) -> dict:
    """One run: one model on one text. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    definition = settings.definition(name)
    model = definition.build_model(corpus.source.vocabulary_size, dtype=settings.train.dtype_policy)
    sizes = {"batch_size": settings.batch_size, "length": settings.context}
    if model.context is None:
        windows = StatefulWindows(corpus.train_ids, reset_prob=0.25, seed=settings.seed, **sizes)
        training_model, batches = (
            stateful_training_model(model, settings.batch_size, settings.context),
            windows.stateful_dataset,
        )
    else:
        training_model, batches = model, SequentialWindows(corpus.train_ids, **sizes).dataset
    train = {**dataclasses.asdict(settings.train), **settings.train.resolved(model)}
    print(f"\n{folder.name}, {model.count_params():,} parameters")
    tokens_per_step = settings.batch_size * settings.context
    training.compile_model(training_model, settings.train, settings.steps, tokens_per_step=tokens_per_step)
    record, summaries = training.fit_resumable(
        folder,
        training_model,
        batches,
        tokens_per_step,
        settings.steps,
        settings.train,
        config=config(settings, name, definition, train, seed=settings.seed, corpus={"name": corpus.name}),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(Look(model, corpus, settings), corpus.ids, settings.train, settings.context + 1),
    )
    corpus.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    tokens = record.step * settings.batch_size * settings.context
    result = {
        "parameters": model.count_params(),
        "train_tokens": tokens,
        "train_seconds": record.seconds,
        "tokens_per_second": tokens / record.seconds,
        "val_loss": summaries.scalars["val_loss"],
        "val_loss_streaming": summaries.scalars["val_loss_streaming"],
        "excess_loss": summaries.scalars["excess_loss"],
        "standard_error": summaries.scalars["standard_error"],
        "sample": summaries.texts["sample"],
    }
    training.write_result(folder, result)
    return result


def compare(settings: Floors, folder: pathlib.Path) -> list[dict]:
    """Trains all that is not yet trained in `folder`, then writes the report. Returns its rows."""
    corpora = [settings.corpus(name) for name in settings.corpora]  # what cannot be drawn is an error now
    rows = []
    for corpus in corpora:
        print(
            f"\n{corpus.name}: {len(corpus.train_ids):,} ids to train on, {len(corpus.ids):,} to validate on, "
            f"{corpus.source.vocabulary_size} distinct; entropy rate {corpus.source.entropy_rate:.4f} nats, of the "
            f"validation text {corpus.floor:.4f}"
        )
        floor = {"corpus": corpus.name, "entropy_rate": corpus.source.entropy_rate, "source_loss": corpus.floor}
        ngrams = dataclasses.asdict(corpus.ngrams())
        rows.append({**floor, "model": f"{corpus.order}-gram", "run": None, **ngrams})
        rows[-1]["val_loss_streaming"] = corpus.floor + ngrams["excess_loss"]
        for name in settings.models:
            run = folder / f"{corpus.name}-{name}-seed{settings.seed}"
            result = training.load_result(run) or train_one(run, settings, name, corpus)
            rows.append({**floor, "model": name, "run": run.name, **result})
    floors_report.write(folder, rows)
    return rows


@one_sentence("experiments.floors")
def main(arguments=None):
    """The command line."""
    with begin(Floors, "floors", __doc__, arguments, tiny) as (settings, folder):
        rows = compare(settings, folder)
        print(floors_report.closing(folder, rows))
        leaks = floors_report.leaks(rows)
        if leaks:
            print("\n".join(leaks), file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
