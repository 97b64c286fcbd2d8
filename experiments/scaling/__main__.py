"""How does the loss fall with size? Five sizes of an LSTM and of a Transformer, with equal tokens and equal compute.

    python -m experiments.scaling                                  # Python's docstrings, offline
    python -m experiments.scaling --corpus shakespeare
    python -m experiments.scaling --tokens 2000000 --compute 1e12
    python -m experiments.scaling --smoke                          # tiny sizes, takes seconds

Sizes are from 12,000 to 790,000 parameters without embedding and head. With equal tokens, each family gets a power law
with an asymptote L_inf (if five points determine it) and one without; with equal compute, a parabola in ln N (Hoffmann
et al., 2022), because a model that is too large for its compute has seen too few tokens. The learning rate of LSTMs
grows with the inverse root of their width; that of Transformers is constant.

Expected on tiny Shakespeare, after eight minutes on 2 cores: with 460,800 tokens each, twice the size lowers the loss
of an LSTM by 2.3 % and that of a Transformer by 2.6 % (exponents 0.033 ± 0.011 and 0.037 ± 0.002; these sizes do not
determine L_inf). With 3e11 FLOPs each, the best sizes are near 50,000 and 40,000 parameters.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from experiments.frame.corpora import for_smoke, print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.random_window_training import SplitCorpus, train_one
from experiments.frame.report import validation_note
from experiments.frame.runs import check_same_corpus, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.scaling import report as scaling_report
from experiments.scaling import sizes as scaling_sizes
from keras_seq import training
from keras_seq.models.flops import flops_per_token

BUDGETS = ("tokens", "compute")


@dataclasses.dataclass(frozen=True)
class ScalingTrainConfig(training.TrainConfig):
    """Training config with the intervals of short runs."""

    log_every: int = 25
    """Steps between two points of the training curve."""
    validate_every: int = 1000
    """Steps between two validations; the last step always has one."""
    checkpoint_every: int = 500
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class ScalingConfig:
    """Train five sizes of two model families, and fit power laws to their losses."""

    corpus: str = "docstrings"
    """Training corpus: docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder
    KERAS_SEQ_DATA), or a UTF-8 file."""
    families: tuple[Literal["lstm", "transformer"], ...] = ("lstm", "transformer")
    """Model families to train."""
    tokens: int = 460_800
    """Token budget: number of characters that each size is trained on, repetitions included."""
    compute: float = 3e11
    """Compute budget: floating-point operations (FLOPs) of the training of each size."""
    batch_size: int = 12
    """Number of windows in a batch."""
    sequence_length: int = 64
    """Sequence length T of the windows, in characters, and context length of the Transformers."""
    seed: int = 0
    """Random seed of the weights and batches."""
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/scaling/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/scaling/UTC-TIME to resume. Options not given on the command line are read from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, and pydoc instead of docstrings, to check that everything works."""
    train: ScalingTrainConfig = dataclasses.field(default_factory=ScalingTrainConfig)

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        if self.compute <= 0:
            raise ValueError(f"--compute {self.compute}: expected a number of FLOPs above zero, e.g. 4e11.")
        if not self.families or len(set(self.families)) < len(self.families):
            raise ValueError(f"--families {' '.join(self.families)}: expected one or two families, each only once.")

    def num_steps(self, budget: str, flops: float) -> int:
        """Return the number of training steps of a model.

        Args:
            budget: `"tokens"` or `"compute"`.
            flops: Training FLOPs per token of the model.
        """
        tokens = self.tokens if budget == "tokens" else self.compute / flops
        return round(tokens / (self.batch_size * self.sequence_length))

    def train_config(self, model, model_config, num_steps: int) -> training.TrainConfig:
        """Return the training config of a size: learning rate for its width, warm-up of at most a tenth of the run.

        Args:
            model: The model.
            model_config: The model's config.
            num_steps: Number of training steps.
        """
        rate = self.train.peak_learning_rate(model)
        if self.train.learning_rate is None:
            rate *= scaling_sizes.learning_rate_factor(model_config)
        warmup_steps = min(self.train.warmup_steps, num_steps // 10)
        return dataclasses.replace(self.train, learning_rate=float(f"{rate:.3g}"), warmup_steps=warmup_steps)


def smoke_config(config: ScalingConfig) -> ScalingConfig:
    """Return the config at sizes that take seconds."""
    return dataclasses.replace(
        config,
        corpus=for_smoke(config.corpus),
        families=config.families[:1],
        tokens=8 * 4 * 8,
        compute=6e6,
        batch_size=4,
        sequence_length=8,
        train=dataclasses.replace(config.train, log_every=1, validate_every=8, checkpoint_every=8),
    )


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run before it starts."""

    family: str
    budget: str
    model_config: object
    non_embedding_parameters: int
    flops_per_token: int
    num_steps: int
    train: training.TrainConfig

    @property
    def name(self) -> str:
        """Return the name of the run folder without the seed."""
        return f"{self.family}-{self.non_embedding_parameters}-{self.budget}"


def plan(config: ScalingConfig, vocabulary_size: int) -> list[PlannedRun]:
    """Plan all runs: each size with both budgets.

    Args:
        config: Options of the experiment.
        vocabulary_size: Number of ids V.

    Raises:
        ValueError: A budget is less than one batch.
    """
    runs = []
    for family in config.families:
        for model_config in scaling_sizes.model_configs(family, config.sequence_length, config.smoke):
            model = model_config.build_model(vocabulary_size)
            flops = flops_per_token(model, config.sequence_length, training=True)
            for budget in BUDGETS:
                num_steps = config.num_steps(budget, flops)
                if num_steps < 1:
                    needed = flops * config.batch_size * config.sequence_length
                    raise ValueError(
                        f"--{budget} {getattr(config, budget):g}: less than a batch for the {family} of "
                        f"{model.count_params():,} parameters, which takes {needed:.1g} FLOPs; give more."
                    )
                train = config.train_config(model, model_config, num_steps)
                size = scaling_sizes.non_embedding_parameters(model)
                runs.append(PlannedRun(family, budget, model_config, size, flops, num_steps, train))
    return runs


def train_run(folder: pathlib.Path, config: ScalingConfig, run: PlannedRun, data: SplitCorpus) -> dict:
    """Train one run, or resume it.

    Args:
        folder: Run folder.
        config: Options of the experiment.
        run: The planned run.
        data: The corpus.

    Returns:
        The contents of the run's result.json.
    """
    _, result = train_one(
        *(folder, config, run.family, run.model_config, data),
        *(config.batch_size, config.sequence_length, run.num_steps, run.train),
    )
    result |= {
        "budget": run.budget,
        "seed": config.seed,
        "steps": run.num_steps,
        "non_embedding_parameters": run.non_embedding_parameters,
        "train_flops": run.flops_per_token * result["train_tokens"],
    }
    training.write_result(folder, result)
    return result


def train_sizes(config: ScalingConfig, folder: pathlib.Path) -> list[dict]:
    """Train all runs that are not finished in a folder, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the runs.

    Returns:
        One dict per run, as in scaling.json.

    Raises:
        ValueError: A budget is less than one batch, or the runs in the folder were trained on another text.
    """
    data = SplitCorpus(config.corpus, config.sequence_length + 1)
    check_same_corpus(folder, data.corpus)
    runs = plan(config, data.vocabulary.vocabulary_size)
    print(
        f"{data.corpus.name}: {len(data.train):,} training characters, {len(data.validation):,} validation characters, "
        f"{data.vocabulary.vocabulary_size} distinct; {len(runs)} runs of {config.tokens:,} characters or "
        f"{config.compute:.2g} FLOPs{validation_note(config.train, data.validation, config.sequence_length + 1)}"
    )
    print_overlap_note(*data.texts)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for run in runs:
        path = folder / f"{run.name}-seed{config.seed}"
        rows.append(training.load_result(path) or train_run(path, config, run, data))
    scaling_report.write_report(folder, data.corpus.name, rows)
    return rows


@exit_with_message("experiments.scaling")
def main(arguments=None):
    """Run the command line."""
    with start_or_resume(ScalingConfig, "scaling", __doc__, arguments, smoke_config) as (config, folder):
        rows = train_sizes(config, folder)
        print(scaling_report.final_message(folder, rows))


if __name__ == "__main__":
    main()
