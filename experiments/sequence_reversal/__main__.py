"""Can a model reverse a random sequence, and does the causal mask hide all future tokens from it?

    python -m experiments.sequence_reversal
    python -m experiments.sequence_reversal --broken-mask --steps 300    # no causal mask: the check has to fail
    python -m experiments.sequence_reversal --smoke                      # tiny sizes, takes seconds

Time: 7 minutes on 2 cores.

Expected result on 20,000 new sequences of 1 to 20 letters, seed 0:

    model         parameters   second half accuracy   sequence accuracy   first half loss (nats per letter)
    Transformer   102,464      100.00 %               100.00 %            3.259
    LSTM          338,013      99.09 %                91.42 %             3.268

A causal model cannot have a first half loss below log 26 = 3.258 on average. Without the causal mask it is 0.030, and
the exit status is 1. The LSTM has three times the parameters, because it has to store all letters in its state; its
accuracy for sequences of 20 letters is 44 %. Neither model generalizes to lengths not trained on: for 21 letters the
sequence accuracy is 0 % (Transformer) and 23 % (LSTM); for 40 letters 10 to 12 % of the ids are correct.
"""

import pathlib

from experiments.frame.experiment import experiment_main, run_once
from experiments.frame.report import Report
from experiments.frame.tasks import train_on_task
from experiments.sequence_reversal.models import build_model
from experiments.sequence_reversal.report import reversal_report
from experiments.sequence_reversal.scores import ReversalTask
from experiments.sequence_reversal.settings import SMOKE, SequenceReversalConfig


def train_one(run: pathlib.Path, settings: SequenceReversalConfig, name: str) -> dict:
    """Train and test one model."""
    task = ReversalTask(build_model(settings, name), settings)
    options = {"diagnostics": [task.attention]}
    return train_on_task(run, settings, name, settings.model_config(name), task, settings.train, **options)


def compare(settings: SequenceReversalConfig, folder: pathlib.Path) -> Report:
    """Train all models that are not finished in `folder`, and report whether they are causal."""
    for name in settings.model_names:  # raises before anything is written
        build_model(settings, name)
    reversal, steps = settings.reversal, settings.steps
    print(
        f"Sequences of 1 to {reversal.max_length} letters, {reversal.alphabet_size} different ones; {steps:,} steps of "
        f"{reversal.batch_size} sequences, {steps * reversal.tokens_per_step:,} target tokens"
    )
    rows = []
    for name in settings.model_names:
        run = folder / f"{name}-seed{settings.seed}"
        result = run_once(run, settings.seed, lambda run=run, name=name: train_one(run, settings, name))
        rows.append({"model": name, "run": run.name, **result})
    return reversal_report(folder, rows)


main = experiment_main("sequence_reversal", SequenceReversalConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
