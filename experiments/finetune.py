"""How much of full fine-tuning do adapters of a few percent of the weights reach?

    python -m experiments.finetune                                    # pydoc to Shakespeare, an LSTM
    python -m experiments.finetune --from path/to/smollm2-135m --corpus notes.txt --methods lora
    python -m experiments.finetune --from logs/compare/TIME/mamba-seed0 --trainable "block_1/*" --lora-rank 4
    python -m experiments.finetune --from RUN --methods lora --trainable "*" head --modules-to-save "*bias*"
    python -m experiments.finetune --smoke                            # tiny sizes, takes seconds
    keras-seq export logs/finetune/TIME/lora-seed0 --to hugging_face    # adapters merged

Time: 93 s with `--methods full`, on 2 cores.

Of these, 48 s train the base and 24 s the method. By default three methods train that many tokens each.

A language model is trained further on another text: by low-rank additions to its matrices (lora), by its weights
(full), and for comparison from new weights (scratch), with the same batches. All curves share one axis of training
tokens. adapters.safetensors in the run of lora holds the additions, and the weights of `--modules-to-save` (biases are
few and help), alone: `keras_seq.models.lora.load_adapters` reads them.

From `pydoc` to tiny Shakespeare all weights end at 1.610 nats and adapters of 3.8 % of them at 1.889 (one seed). The
gap grows with the tokens of fine-tuning (experiments/LOG.md).
"""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import keras
import numpy as np
import tyro

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.commands import options
from keras_seq.commands.options import check_options
from keras_seq.data import Corpus, RandomWindows, load_corpus
from keras_seq.models import LanguageModel, LlamaConfig, LSTMConfig, MambaConfig
from keras_seq.models.lora import enable_lora, save_adapters, set_trainable
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus, without_texts
from keras_seq.runs.finished_run import load_run_or_folder
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus
from keras_seq.tokenizers import CharacterTokenizer

METHODS = ("lora", "full", "scratch")


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Continue the training of a model on another text, by few weights and by all."""

    base: Annotated[
        str | None,
        tyro.conf.arg(
            name="from",
            metavar="FOLDER_OR_RUN",
            help="A Hugging Face folder, or the folder of a finished run, whose language model is trained further. "
            "None: first train a model on --base-corpus.",
        ),
    ] = None
    base_corpus: options.CorpusName = "pydoc"
    base_tokens: int = 1_000_000
    """Without --from, training tokens of the base."""
    model: Literal["lstm", "llama", "mamba"] = "lstm"
    """Without --from, the model to train as a base."""
    corpus: options.CorpusName = "shakespeare"
    tokens: int = 500_000
    """Training tokens of every run, on --corpus."""
    methods: tuple[Literal[METHODS], ...] = METHODS
    """lora: low-rank additions to the matrices. full: the weights themselves. scratch: all weights, from new values."""
    trainable: tuple[str, ...] = ("*",)
    """Patterns of paths such as block_1/*: with lora the layers that get additions, with full the trained weights."""
    lora_rank: int = 8
    """Rank of the additions."""
    lora_alpha: float | None = None
    """The additions are multiplied by LORA_ALPHA / LORA_RANK; the rank by default."""
    modules_to_save: tuple[str, ...] = ()
    """Patterns of weights, such as *bias* and embedding*, that lora trains itself and saves with the additions."""
    num_seeds: int = 1
    """Number of runs of each method, with the random seeds 0, 1, ..."""
    batch_size: options.BatchSize = 12
    sequence_length: options.SequenceLength = 64
    log_dir: options.LogDir = "logs"
    resume: options.Resume = None
    smoke: options.Smoke = False
    train: training.TrainConfig = training.TrainConfig(validation_characters=16_384)
    lstm: LSTMConfig = LSTMConfig(embedding_dim=64, units=384)
    llama: LlamaConfig = LlamaConfig(192, num_layers=2, num_heads=4, context_length=64)
    mamba: MambaConfig = MambaConfig(192, num_layers=2)

    def __post_init__(self):
        counts = ("base_tokens", "tokens", "lora_rank", "num_seeds", "batch_size", "sequence_length")
        check_options(self, **dict.fromkeys(counts, 1), lora_alpha=0)
        options.check_unique("--methods", self.methods)
        options.check_unique("--trainable", self.trainable)
        if self.modules_to_save:
            options.check_unique("--modules-to-save", self.modules_to_save)
        if self.train.precision != "float32":
            raise ValueError(f"--train.precision {self.train.precision}: expected float32, that of the base.")

    def options_without_effect(self) -> dict[str, str]:
        unused = {}
        if self.base is not None:
            unused |= dict.fromkeys(("base_corpus", "base_tokens", "model", "lstm", "llama", "mamba"), "no --from")
        if "lora" not in self.methods:
            unused |= dict.fromkeys(("lora_rank", "lora_alpha", "modules_to_save"), "lora among --methods")
        if self.methods == ("scratch",):
            unused["trainable"] = "lora or full among --methods"
        return unused

    @property
    def model_config(self) -> LSTMConfig | LlamaConfig | MambaConfig:
        """The config of the base."""
        return getattr(self, self.model)

    def steps(self, tokens: int) -> int:
        """Return the number of batches that contain `tokens`."""
        return options.num_steps(tokens, self.batch_size * self.sequence_length)


SMOKE = {
    "corpus": lambda name: "pydoc" if name == "shakespeare" else name,  # another one unless it is the default
    **{"base_corpus": "docstrings", "base_tokens": 20 * 4 * 16, "tokens": 20 * 4 * 16},
    **{"lora_rank": 1, "batch_size": 4, "sequence_length": 16},
    "train": {**options.SMOKE_TRAIN, "sample_length": 20},
    "lstm": {"embedding_dim": 8, "units": 16},
    "llama": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "context_length": 16},
    "mamba": {"embedding_dim": 16, "num_layers": 1, "state_dim": 4},
}


def with_new_weights(model: LanguageModel) -> LanguageModel:
    """Return a model of the same config with weights as its initializers draw them."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    return copy


def digest(model: keras.Model) -> str:
    """Return the SHA-256 of all weights, so that a run goes on from the base that it began with only."""
    sha256 = hashlib.sha256()
    for weight in model.get_weights():
        sha256.update(np.ascontiguousarray(weight).tobytes())
    return sha256.hexdigest()


def prepare(model: LanguageModel, config: FinetuneConfig, method: str) -> keras.Model:
    """Return the model that a method trains: `model` itself, or one with new weights; no match of a pattern raises."""
    if method == "scratch":
        return with_new_weights(model)
    if method == "lora":
        enable_lora(model, config.lora_rank, config.lora_alpha, config.trainable, config.modules_to_save)
    else:
        set_trainable(model, config.trainable)
    return model


def train_base(run: pathlib.Path, config: FinetuneConfig, seed: int, corpus: Corpus, data: SplitCorpus) -> dict:
    """Train the base on its own text; `corpus` in its config.json is that of the fine-tuning, as in all runs beside."""
    train_text, validation_text = corpus.split(min_length=config.sequence_length + 1)
    model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    ids = data.tokenizer.encode(train_text)
    windows = RandomWindows(ids, config.batch_size, config.sequence_length, seed=seed)
    extra = {"seed": seed, "base_corpus": {"name": corpus.name, "sha256": corpus.sha256}}
    saved = run_config(config, config.model, config.model_config, config.train, model, data.corpus, **extra)
    steps = config.steps(config.base_tokens)
    return training.train_language_model(
        run, model, data.tokenizer, windows, validation_text, steps, config.train, saved
    )


def train_one(
    run: pathlib.Path, config: FinetuneConfig, method: str, seed: int, base: pathlib.Path, data: SplitCorpus
) -> dict:
    """Train the model of `base` by one method."""
    loaded = load_run_or_folder(base)
    described = {"name": loaded.model.name, "parameters": loaded.model.count_params(), "sha256": digest(loaded.model)}
    model = prepare(loaded.model, config, method)
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    saved = {
        "experiment": dataclasses.asdict(config) | {"base": str(base)},
        "model": {"name": described["name"], "base": described, "method": method},
        "train": dataclasses.asdict(config.train) | config.train.resolved(model),
        "corpus": {"name": data.corpus.name, "sha256": data.corpus.sha256},
        "seed": seed,
    }

    def finish(summaries):
        if method == "lora":
            save_adapters(model, run / "adapters.safetensors")
        numbers = {"base_parameters": described["parameters"], "trainable_parameters": trained}
        return {"method": method, "seed": seed, **numbers}

    windows = RandomWindows(data.train, config.batch_size, config.sequence_length, seed=seed)
    sizes = (windows, data.validation_text, config.steps(config.tokens), config.train, saved)
    return training.train_language_model(run, model, data.tokenizer, *sizes, finish=finish)


def by_method(rows: Sequence[dict]) -> dict[str, list[dict]]:
    """Return the rows of each method, in the order of the first."""
    return {method: [row for row in rows if row["method"] == method] for method in {row["method"]: 0 for row in rows}}


def differences(rows: Sequence[dict], method: str, other: str) -> list[float]:
    """Return for each seed that both have by how much a method's val_loss is above the other's, in nats per token."""
    losses = {(row["method"], row["seed"]): row["val_loss"] for row in rows}
    seeds = sorted({seed for name, seed in losses if name == method and (other, seed) in losses})
    return [losses[method, seed] - losses[other, seed] for seed in seeds]


def verdict(rows: Sequence[dict]) -> str:
    """Say what each method reaches, with how many weights, and how certain that is."""
    parts = []
    for method, runs in by_method(rows).items():
        loss, share = plus_minus([run["val_loss"] for run in runs], 3), runs[0]["trainable_parameters"]
        parts.append(f"{method} ends at {loss} with {share / runs[0]['base_parameters']:.1%} of the weights")
    text = f"val_loss in nats per token: {'; '.join(parts)}."
    if gaps := differences(rows, "lora", "full"):
        text += f" lora is {plus_minus(gaps, 3)} above full."
    if gaps := differences(rows, "scratch", "lora"):
        text += f" scratch is {plus_minus(gaps, 3)} above lora."
    one_seed = len({row["seed"] for row in rows}) == 1
    return text + (" One seed: differences below 0.02 may be chance." if one_seed else "")


COLUMNS = {
    **{"method": "{method}".format_map, "seed": "{seed}".format_map},
    "trained weights": "{trainable_parameters:,}".format_map,
    "of all": lambda row: f"{row['trainable_parameters'] / row['base_parameters']:.1%}",
    **{"train seconds": "{train_seconds:.0f}".format_map, "train loss": "{train_loss:.3f}".format_map},
    **{"val_loss": "{val_loss:.3f}".format_map, "val bits/char": "{val_bits_per_character:.3f}".format_map},
}
NOTES = (
    "Losses in nats per token, on disjoint windows of the validation split, each from the zero state or the empty "
    "cache. All runs have the same batches, tokens and learning rates. lora: adapters.safetensors in the run's folder "
    "holds what it trained, model.keras the sums with the base. `of all`: relative to the weights of the base."
)


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write finetune.png: validation loss over training tokens."""
    figure, axes = plots.subplots(figsize=(8, 4.8))
    colors = plots.colors([*by_method(rows)])
    for row in rows:
        axes.plot(*plots.curve(folder / row["run"]), color=colors[row["method"]], marker="o")
    plots.token_axis(axes)
    axes.set_ylabel(f"validation loss{plots.sample_note(folder / rows[0]['run'])} (nats per token)")
    plots.legend(axes, colors)
    plots.save(figure, folder / "finetune.png")


def finetune(config: FinetuneConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    base, min_length = config.base, config.sequence_length + 1
    if base is None:
        base_corpus = load_corpus(config.base_corpus)
        data = SplitCorpus(
            *(config.corpus, folder, min_length),
            tokenizer=lambda text, _: CharacterTokenizer.from_text(text + base_corpus.text),
        )
        base_corpus.split(min_length=min_length)  # raises where it is too short
        model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    else:
        base = pathlib.Path(base)
        loaded = load_run_or_folder(base)
        if not isinstance(loaded.model, LanguageModel):
            raise ValueError(f"--from {base}: its model does not predict the next token; expected a language model.")
        model = loaded.model
        data = SplitCorpus(config.corpus, folder, min_length, tokenizer=lambda *_: loaded.tokenizer)
    if (model.context_length or config.sequence_length) < config.sequence_length:
        raise ValueError(f"--sequence-length {config.sequence_length}: expected at most {model.context_length}.")
    for method in config.methods:
        prepare(with_new_weights(model), config, method)  # patterns are checked before anything is trained
    data.introduce(config.train, min_length, f"{model.name} of {model.count_params():,} parameters")
    rows = []
    for seed in range(config.num_seeds):
        if config.base is None:
            base = folder / f"base-seed{seed}"
            run_once(base, seed, functools.partial(train_base, base, config, seed, base_corpus, data))
        for method in config.methods:
            run = folder / f"{method}-seed{seed}"
            result = run_once(run, seed, functools.partial(train_one, run, config, method, seed, base, data))
            rows.append({"run": run.name, **result})
    plot(folder, rows)
    return Report(
        f"Fine-tuning {model.name} on {data.corpus.name}",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("method", "seed", "trained weights", "of all", "val_loss", "val bits/char"),
        without_texts(rows),
        NOTES,
        ["![Validation loss over training tokens](finetune.png)"],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


main = experiment_main("finetune", FinetuneConfig, SMOKE, finetune, __doc__)

if __name__ == "__main__":
    main()
