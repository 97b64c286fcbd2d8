"""How few processor seconds does a val_loss of 1.47 @256 on tiny Shakespeare take?

    python -m experiments.speedrun --score-on-dev-split                   # try recipe.py, never on the validation text
    python -m experiments.speedrun --num-seeds 5 --record "Larger steps"  # and if it is faster than all before
    python -m experiments.speedrun --recipe my_recipe.py                  # another file
    python -m experiments.speedrun --write-table                          # the table of docs/speedrun.md, from records/
    python -m experiments.speedrun --smoke                                # 5,000 characters, takes a minute

Time: 10 minutes on 2 cores.

To take part, change recipe.py, a function from the ids of the training text to a model, and nothing else. Each seed
trains in a process of its own, on one thread. Its processor seconds, compilation included, are multiplied by the speed
of a matrix product measured there, so that machines compare. docs/speedrun.md has the rules, the way to take part for
people and for programs, and the records.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Annotated

import tyro
from tqdm import tqdm

from experiments.common.command import experiment_main
from experiments.common.jobs import is_worker, run_all
from experiments.speedrun import records
from experiments.speedrun.records import LENGTH, TARGET, drift, scaled_seconds
from keras_seq import training
from keras_seq.commands.options import CorpusName, LogDir, Resume, Smoke, check_options
from keras_seq.files import write_text
from keras_seq.reports.tables import Report, Table, plus_minus
from keras_seq.runs.texts import SplitCorpus
from keras_seq.training import run_folder
from keras_seq.training.run_config import environment

RECIPE = pathlib.Path(__file__).with_name("recipe.py")
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")
SMOKE_CHARACTERS = 5_000


@dataclasses.dataclass(frozen=True)
class SpeedrunConfig:
    """Measure how fast a recipe reaches the target."""

    corpus: CorpusName = "shakespeare"
    recipe: str = str(RECIPE)
    """File with a function train(ids, vocabulary_size, seed) that returns a Keras model from ids to logits."""
    num_seeds: int = 3
    """Number of seeds, each trained in a process of its own."""
    record: str | None = None
    """Name of the record to write into records/ if all rules are met."""
    score_on_dev_split: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train without the last tenth of the training split and score that tenth, to choose what a recipe does."""
    write_table: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train nothing; write the table of the records into docs/speedrun.md."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False

    def __post_init__(self):
        check_options(self, num_seeds=1)
        path = pathlib.Path(self.recipe)
        if not path.is_file():
            raise ValueError(f"--recipe {self.recipe}: expected a Python file; {RECIPE.name} here is one to copy.")
        if path.stat().st_size > records.MAX_RECIPE_BYTES:
            size = f"{path.stat().st_size:,} bytes"
            raise ValueError(f"--recipe {self.recipe}: {size}; expected at most {records.MAX_RECIPE_BYTES:,}.")
        if self.record is not None:
            self._check_record()

    def _check_record(self):
        if not any(character.isascii() and character.isalnum() for character in self.record):
            raise ValueError(f"--record {self.record!r}: expected a name of the record, in words.")
        if self.corpus != "shakespeare" or self.score_on_dev_split or self.smoke:
            raise ValueError(
                f"--record {self.record}: expected it without --corpus, --score-on-dev-split and --smoke, as a record "
                "is of the validation split of tiny Shakespeare."
            )
        if self.num_seeds < records.MIN_SEEDS:
            raise ValueError(f"--num-seeds {self.num_seeds}: expected at least {records.MIN_SEEDS} with --record.")

    def check_resumed(self, saved: "SpeedrunConfig"):
        """Refuse more seeds than a record began with: p is that of a number chosen before a loss was known."""
        if saved.record is not None and self.num_seeds != saved.num_seeds:
            raise ValueError(
                f"--num-seeds {self.num_seeds}: expected the {saved.num_seeds} of this record; start a new run."
            )


SMOKE = {"corpus": "pydoc", "num_seeds": 2}


class Attempt:
    """A process of `experiments.speedrun.attempt`, and the pipes to it."""

    def __init__(self, recipe: pathlib.Path, log):
        environment = {name: value for name, value in os.environ.items() if name != "KERAS_SEQ_DATA"}
        environment |= dict.fromkeys(THREADS, "1") | {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
        if backend := records.BACKEND.search(recipe.read_text(encoding="utf-8")):
            environment["KERAS_BACKEND"] = backend[1]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        command = [sys.executable, "-m", "experiments.speedrun.attempt"]
        self.process = subprocess.Popen(command, env=environment, text=True, encoding="utf-8", **pipes)

    def ask(self, **request) -> dict:
        """Send a request and return the answer; raise a RuntimeError for a mistake of the recipe."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, and gives no answer
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"It ended with exit status {self.process.wait()}."}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def __enter__(self):
        """Return the attempt."""
        return self

    def __exit__(self, *exception):
        """End the process."""
        self.process.kill()
        self.process.communicate()


def train_seed(run: pathlib.Path, config: SpeedrunConfig, seed: int, data: SplitCorpus, scored) -> dict:
    """Train and score the recipe of a folder with one seed; what it prints goes to log.txt."""
    run.mkdir(parents=True, exist_ok=True)
    corpus = {"name": data.corpus.name, "sha256": data.corpus.sha256}
    saved = {"experiment": dataclasses.asdict(config), "corpus": corpus, "seed": seed, **environment()}
    run_folder.write_checksummed(run / "config.json", saved)
    recipe, size = (run.parent / "recipe.py").absolute(), data.tokenizer.vocabulary_size
    with open(run / "log.txt", "w", encoding="utf-8") as log, Attempt(recipe, log) as attempt:
        try:
            result = attempt.ask(recipe=str(recipe), seed=seed, vocabulary_size=size, ids=data.train.tolist())
            result |= attempt.ask(ids=scored.tolist())
        except RuntimeError as error:
            raise training.OptionError(f"{config.recipe}: {error} {run / 'log.txt'} has what it printed.") from None
    training.write_result(run, result)
    return result


def is_to_use(run: pathlib.Path, config: SpeedrunConfig) -> bool:
    """Return whether a seed has a result to use; one during which the machine's speed changed is trained again."""
    result = training.load_result(run)
    return result is not None and (config.smoke or drift(result) <= records.MAX_DRIFT)


def measure(config: SpeedrunConfig, folder: pathlib.Path) -> Report | str:
    """Train all seeds, and write the record if there is one."""
    if config.write_table:
        records.write_table()
        return f"{records.PAGE} has the table of {len(records.load())} records."
    data = SplitCorpus(config.corpus, folder, min_length=LENGTH + 1, held_out=config.score_on_dev_split)
    scored = data.validation if data.held_out is None else data.held_out
    if config.smoke:
        data.train, scored = data.train[:SMOKE_CHARACTERS], scored[:SMOKE_CHARACTERS]
    if not (folder / "recipe.py").exists():  # of a resumed folder, what its other seeds were trained with
        write_text(folder / "recipe.py", pathlib.Path(config.recipe).read_text(encoding="utf-8"))
    runs = [folder / f"seed{seed}" for seed in range(config.num_seeds)]
    to_train = [run for run in runs if not is_to_use(run, config)]
    for run in to_train:
        (run / "result.json").unlink(missing_ok=True)
    with tqdm(total=len(to_train), desc="seeds", unit="seed", disable=None, dynamic_ncols=True) as progress:

        def train_one(run, seed):
            result = train_seed(run, config, seed, data, scored)
            progress.update()
            tqdm.write(f"val_loss {result['val_loss']:.4f}, {scaled_seconds(result):.1f} scaled seconds")
            return result

        results = run_all([(run, seed, functools.partial(train_one, run, seed)) for seed, run in enumerate(runs)])
    rows = [{"seed": seed, "run": runs[seed].name, **result} for seed, result in enumerate(results)]
    objections, written = [], None
    is_new = rows not in [record["seeds"] for record in records.load()]
    if config.record is not None and is_new and not is_worker():
        objections = records.objections(rows, records.fastest())
        if not objections:
            facts = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "corpus": data.corpus.sha256, **environment()}
            written = records.write(config.record, folder, rows, facts)
            records.write_table()
    return report(config, rows, objections, written)


def report(config: SpeedrunConfig, rows: list[dict], objections: list[str], written: pathlib.Path | None) -> Report:
    """Return the report; its failures are what kept the seeds from being a record."""
    result, standing = records.summary(rows), records.fastest()
    text = "text held out from the training split" if config.score_on_dev_split else "the validation split"
    p = f" (p = {result['p_value']:.2g} that it is below {TARGET} by chance)" if len(rows) > 1 else ""
    losses = plus_minus(result["val_losses"], 4)
    verdict = f"{result['seconds']:.1f} scaled processor seconds to a val_loss@{LENGTH} of {losses} on {text}{p}."
    if written is not None:
        verdict += f" A record: {written.name}."
    elif standing is not None:
        verdict += f" The record is {standing['seconds']:.1f} seconds."
    if not config.smoke and not objections:
        verdict = " ".join([verdict, *(f"It does not count: {sentence}" for sentence in records.noisy_seeds(rows))])
    columns = {
        "seed": lambda row: str(row["seed"]),
        f"val_loss@{LENGTH}": lambda row: f"{row['val_loss']:.4f}",
        "scaled seconds": lambda row: f"{scaled_seconds(row):.1f}",
        "processor seconds": lambda row: f"{row['processor_seconds']:.1f}",
        "wall seconds": lambda row: f"{row['wall_seconds']:.1f}",
        "GFLOP/s before": lambda row: f"{row['gflops'][0]:.1f}",
        "GFLOP/s after": lambda row: f"{row['gflops'][1]:.1f}",
        "parameters": lambda row: f"{row['parameters']:,}",
    }
    return Report(
        f"A speedrun to {TARGET} on {'tiny Shakespeare' if config.corpus == 'shakespeare' else config.corpus}",
        verdict,
        Table.of(rows, columns),
        ("seed", f"val_loss@{LENGTH}", "scaled seconds", "processor seconds", "wall seconds"),
        [{**row, "seconds": scaled_seconds(row)} for row in rows],
        f"scaled seconds: processor seconds times the mean of both GFLOP/s of a float32 product of 1,024 x 1,024, by "
        f"{records.REFERENCE_GFLOPS:g}. val_loss@{LENGTH}: every disjoint window of {LENGTH} characters of {text}, in "
        "nats per character.",
        failures=[f"No record: {sentence}" for sentence in objections],
    )


main = experiment_main("speedrun", SpeedrunConfig, SMOKE, measure, __doc__)

if __name__ == "__main__":
    main()
