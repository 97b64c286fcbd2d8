"""The command line of an experiment that trains, and the parts that all of its runs have in common."""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras

from experiments.frame.jobs import finish_all, is_worker, run_workers
from experiments.frame.machine import split_options
from experiments.frame.report import Report
from experiments.frame.runs import start_or_resume
from experiments.frame.startup import exit_with_message
from keras_seq import training
from keras_seq.data import Corpus
from keras_seq.ops.dispatch import clear_session


def experiment_main(
    name: str, settings_class: type, smoke: dict, experiment: Callable[[Any, pathlib.Path], Report | str], doc: str
) -> Callable:
    """Return the `main` of an experiment.

    Args:
        name: Name of its folder, as in `python -m experiments.NAME`.
        settings_class: Frozen dataclass of its options, with `log_dir`, `resume` and `smoke`.
        smoke: Changes of the settings for `--smoke` (`settings.replaced`).
        experiment: Function from the settings and the folder of the runs to the `Report`, or to a text to print.
        doc: Docstring of the script, for --help.
    """

    @exit_with_message(f"experiments.{name}")
    def main(arguments: Sequence[str] | None = None):
        """Run the command line; the exit status is 1 if the report names failures."""
        script = f"experiments.{name}"
        machine, words = split_options(sys.argv[1:] if arguments is None else arguments, script, doc)
        run = start_or_resume(settings_class, name, doc, words, smoke, machine)
        with training.noticing_loss(), run as (settings, folder):
            if machine.jobs is not None:
                run_workers(script, folder, machine.jobs)
            report = experiment(settings, folder)
            if is_worker():
                return
            if isinstance(report, str):
                print(report)
                return
            report.write(folder, name)
            print(report.message(folder))
            if report.failures:
                print("\n".join(report.failures), file=sys.stderr)
                sys.exit(1)

    main.settings_class, main.smoke = settings_class, smoke
    return main


def run_all(runs: Sequence[tuple[pathlib.Path, int, Callable[[], dict]]]) -> list[dict]:
    """Return the results of runs `(run, seed, train_one)`, as `run_once` does; several jobs share them."""
    if not is_worker():
        return [run_once(*run) for run in runs]
    return finish_all([(run, functools.partial(_run_once, run, seed, train)) for run, seed, train in runs])


def run_once(run: pathlib.Path, seed: int, train_one: Callable[[], dict]) -> dict:
    """Return the result of a run; train it, with the random seed set, unless it is finished.

    A worker of several jobs trains it unless another process does; then it waits for that.

    Raises:
        OptionError: An option does not fit the model or its number of steps.
        RuntimeError: Training raised another ValueError. All options were checked before, so it is a bug, with its
            traceback.
    """
    return run_all([(run, seed, train_one)])[0] if is_worker() else _run_once(run, seed, train_one)


def _run_once(run, seed, train_one):
    if (result := training.load_result(run)) is not None:
        return result
    clear_session()
    keras.utils.set_random_seed(seed)
    print(f"\n{run.name}")
    try:
        return train_one()
    except (training.CheckpointError, training.OptionError):
        raise
    except ValueError as error:
        raise RuntimeError(f"{run.name} failed while training.") from error


def run_config(
    settings: Any,
    name: str,
    model_config: Any,
    train: training.TrainConfig,
    model: keras.Model | None = None,
    corpus: Corpus | None = None,
    **extra: Any,
) -> dict:
    """Return the content of a run's config.json.

    Args:
        settings: Settings of the experiment, a dataclass.
        name: Name of the model.
        model_config: Dataclass that the model is built from.
        train: Options of training.
        model: The model, for the options whose defaults depend on it.
        corpus: The text.
        **extra: What else identifies the run, such as its seed.
    """
    resolved = {} if model is None else train.resolved(model)
    return {
        "experiment": dataclasses.asdict(settings),
        "model": {"name": name, **dataclasses.asdict(model_config)},
        "train": dataclasses.asdict(train) | resolved,
        **({} if corpus is None else {"corpus": {"name": corpus.name, "sha256": corpus.sha256}}),
        **extra,
    }
