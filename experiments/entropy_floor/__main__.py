"""How close do models come to the entropy floor of synthetic texts whose entropy rate is known?

    markov     each token depends on the 2 before it, by a random table
    grammar    sentences such as (ab[hc]d{}a), where the opening bracket determines the distant closing bracket

    python -m experiments.entropy_floor
    python -m experiments.entropy_floor --corpora grammar --models lstm mingru mamba transformer --tokens 4000000
    python -m experiments.entropy_floor --smoke                    # tiny sizes, takes seconds

Time: 2 to 5 minutes on 2 cores.

No expected loss can be below the entropy floor. A model whose loss is lower by more than 4 standard errors sees tokens
that it has to predict; then the exit status is 1. Every training token is used once, so nothing can be memorized.

Expected result, val_loss_streaming in nats per token: on markov, whose entropy floor is 1.5546, the Transformer has
1.5579 (0.21 % above), the LSTM 1.5610 (0.41 %), a 3-gram model 1.5550; on grammar, with 2.0729, the LSTM 2.1152 (2.0
%), the Transformer 2.1326 (2.9 %), a 4-gram model 2.3483.
"""

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import keras
import tyro

from experiments.entropy_floor import report as entropy_floor_report
from experiments.entropy_floor.scores import LETTERS, ExcessLoss, SyntheticCorpus
from experiments.frame.option_checks import check_options
from experiments.frame.runs import run_config, start_or_resume
from experiments.frame.startup import exit_with_message
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
class TrainConfig(training.TrainConfig):
    """Training options for short runs."""

    validate_every: int = 200
    """Steps between two validations, each with a generated sample."""
    sample_length: int = 120
    """Tokens in a generated sample."""


@dataclasses.dataclass(frozen=True)
class EntropyFloorConfig:
    """Train models on texts whose entropy rate is known."""

    models: tuple[Literal[LANGUAGE_MODELS], ...] = ("lstm", "transformer")
    """Models to train, in this order."""
    corpora: tuple[Literal[CORPORA], ...] = CORPORA
    """Texts to train on, in this order."""
    vocabulary_size: int = 8
    """V of the Markov chain, and the number of letters between the brackets of the grammar; at most 26."""
    order: int = 2
    """Number of previous tokens that the next token of the Markov chain depends on."""
    concentration: float = 0.5
    """Dirichlet concentration of the Markov chain's table; lower values give a lower entropy."""
    tokens: int = 819_200
    """Tokens that each model is trained on, each of them once."""
    validation_tokens: int = 50_000
    """Tokens to validate on."""
    width: int = 64
    """D of models with a residual stream, such as the Transformer, with 2 blocks; a multiple of 8. LSTM, GRU and RNN
    have one layer of 2 D units.
    """
    batch_size: int = 16
    """Windows in a batch."""
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens; also the Transformer's context length."""
    seed: int = 0
    """Random seed of the sources, the weights and the batches."""
    log_dir: str = "logs"
    """Folder for logs; the runs are written to LOG_DIR/entropy_floor/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/entropy_floor/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def __post_init__(self):
        check_options(self, vocabulary_size=2, order=1, tokens=100, batch_size=1, sequence_length=1)
        check_options(self, validation_tokens=self.sequence_length + 1)
        if self.concentration <= 0:
            raise ValueError(f"--concentration {self.concentration}: expected a number above zero.")
        if self.vocabulary_size > 26:
            raise ValueError(f"--vocabulary-size {self.vocabulary_size}: expected at most 26.")
        if self.width < 8 or self.width % 8:
            raise ValueError(f"--width {self.width}: expected a multiple of 8.")
        for name in ("models", "corpora"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"--{name} {' '.join(values)}: expected one or more names, each once.")

    @property
    def steps(self) -> int:
        """Return the number of training steps that `tokens` take."""
        return -(-self.tokens // (self.batch_size * self.sequence_length))

    def model_config(self, name: str):
        """Return the config of a model at this width.

        Args:
            name: A key of `keras_seq.models.MODELS`.
        """
        config_class = MODELS[name]
        if name in ONE_LAYER:
            return config_class(embedding_dim=self.width // 2, units=2 * self.width)
        sizes = {
            "embedding_dim": self.width,
            "num_layers": 2,
            "units": 2 * self.width,
            "num_heads": 4,
            "feed_forward_dim": 4 * self.width,
            "context_length": self.sequence_length,
        }
        fields = {field.name for field in dataclasses.fields(config_class)}
        return config_class(**{field: size for field, size in sizes.items() if field in fields})

    def corpus(self, name: str) -> SyntheticCorpus:
        """Draw a text.

        Args:
            name: "markov" or "grammar".
        """
        sizes = (self.steps * self.batch_size * self.sequence_length + 1, self.validation_tokens)
        if name == "markov":
            chain = MarkovChain(self.vocabulary_size, self.order, self.seed, self.concentration)
            return SyntheticCorpus(name, chain, LETTERS[: self.vocabulary_size], *sizes, order=self.order + 1)
        grammar = bracket_grammar(num_letters=self.vocabulary_size, seed=self.seed)
        return SyntheticCorpus(name, grammar, grammar.terminals, *sizes)


def smoke_config(config: EntropyFloorConfig) -> EntropyFloorConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        vocabulary_size=3,
        order=1,
        tokens=12 * 8 * 16,
        validation_tokens=400,
        width=8,
        batch_size=8,
        sequence_length=16,
        train=dataclasses.replace(
            config.train, warmup_steps=2, log_every=3, validate_every=6, checkpoint_every=6, sample_length=20
        ),
    )


class Validator:
    """Score a model on validation ids, and generate a sample.

    Args:
        model: The model.
        corpus: The text it is trained on.
        config: Options of the experiment.
    """

    def __init__(self, model: keras.Model, corpus: SyntheticCorpus, config: EntropyFloorConfig):
        self.corpus, self.config = corpus, config
        self.evaluator, self.generator = Evaluator(model), TextGenerator(model, corpus.tokenizer)

    def __call__(self, ids) -> Summaries:
        losses = self.evaluator.streaming_token_losses(ids)
        excess_loss = ExcessLoss.from_losses(losses, self.corpus.source_losses[: len(ids) - 1])
        return Summaries(
            {
                "val_loss": self.evaluator.chunked_loss(ids, self.config.sequence_length).mean,
                "val_loss_streaming": float(losses.mean(dtype="float64")),
                "excess_loss": excess_loss.excess,
                "standard_error": excess_loss.standard_error,
            },
            {"sample": self.generator(self.corpus.tokenizer.decode(ids[:1]), self.config.train.sample_length)},
        )


def train_one(folder: pathlib.Path, config: EntropyFloorConfig, name: str, corpus: SyntheticCorpus) -> dict:
    """Train and score one model on one text.

    Args:
        folder: Folder of the run.
        config: Options of the experiment.
        name: A key of `keras_seq.models.MODELS`.
        corpus: The text.

    Returns:
        The content of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model_config = config.model_config(name)
    model = model_config.build_model(corpus.source.vocabulary_size, dtype=config.train.dtype_policy)
    sizes = (config.batch_size, config.sequence_length)
    if model.context_length is None:
        windows = StatefulWindows(corpus.train_ids, *sizes, reset_prob=0.25, seed=config.seed)
        training_model = stateful_training_model(model, *sizes)
        dataset_fn = windows.stateful_dataset
    else:
        training_model, dataset_fn = model, SequentialWindows(corpus.train_ids, *sizes).dataset
    train_config = {**dataclasses.asdict(config.train), **config.train.resolved(model)}
    print(f"\n{folder.name}, {model.count_params():,} parameters")
    tokens_per_step = config.batch_size * config.sequence_length
    training.compile_model(training_model, config.train, config.steps, tokens_per_step=tokens_per_step)
    logger, summaries = training.fit_resumable(
        folder,
        training_model,
        dataset_fn,
        tokens_per_step,
        config.steps,
        config.train,
        config=run_config(config, name, model_config, train_config, seed=config.seed, corpus={"name": corpus.name}),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(
            Validator(model, corpus, config), corpus.ids, config.train, config.sequence_length + 1
        ),
    )
    corpus.tokenizer.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    tokens = logger.step * config.batch_size * config.sequence_length
    result = {
        "parameters": model.count_params(),
        "train_tokens": tokens,
        "train_seconds": logger.seconds,
        "tokens_per_second": tokens / logger.seconds,
        "val_loss": summaries.scalars["val_loss"],
        "val_loss_streaming": summaries.scalars["val_loss_streaming"],
        "excess_loss": summaries.scalars["excess_loss"],
        "standard_error": summaries.scalars["standard_error"],
        "sample": summaries.texts["sample"],
    }
    training.write_result(folder, result)
    return result


def compare(config: EntropyFloorConfig, folder: pathlib.Path) -> list[dict]:
    """Train the models that are not finished yet, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the experiment.

    Returns:
        The rows of the report.
    """
    corpora = [config.corpus(name) for name in config.corpora]  # raises before training
    rows = []
    for corpus in corpora:
        print(
            f"\n{corpus.name}: {len(corpus.train_ids):,} training tokens, {len(corpus.ids):,} validation tokens, "
            f"vocabulary size {corpus.source.vocabulary_size}; entropy rate {corpus.source.entropy_rate:.4f} nats per "
            f"token, loss of the source on the validation tokens {corpus.source_loss:.4f}"
        )
        source = {
            "corpus": corpus.name,
            "entropy_rate": corpus.source.entropy_rate,
            "source_loss": corpus.source_loss,
        }
        ngrams = corpus.ngrams()
        metrics = {
            "val_loss_streaming": corpus.source_loss + ngrams.excess,
            "excess_loss": ngrams.excess,
            "standard_error": ngrams.standard_error,
        }
        rows.append({**source, "model": f"{corpus.order}-gram", "run": None, **metrics})
        for name in config.models:
            run = folder / f"{corpus.name}-{name}-seed{config.seed}"
            result = training.load_result(run) or train_one(run, config, name, corpus)
            rows.append({**source, "model": name, "run": run.name, **result})
    entropy_floor_report.write_report(folder, rows)
    return rows


@exit_with_message("experiments.entropy_floor")
def main(arguments: list[str] | None = None):
    """Run the experiment from the command line; the exit status is 1 if a model is below the entropy floor."""
    with start_or_resume(EntropyFloorConfig, "entropy_floor", __doc__, arguments, smoke_config) as (config, folder):
        rows = compare(config, folder)
        print(entropy_floor_report.final_message(folder, rows))
        messages = entropy_floor_report.leak_messages(rows)
        if messages:
            print("\n".join(messages), file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
