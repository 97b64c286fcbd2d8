"""How does the loss fall with size? Five sizes of an LSTM and of a Transformer, with equal tokens and equal compute.

    python -m experiments.scaling                                  # Python's docstrings, offline
    python -m experiments.scaling --corpus shakespeare
    python -m experiments.scaling --tokens 2000000 --compute 1e12
    python -m experiments.scaling --smoke                          # tiny sizes, takes seconds

Time: 8 minutes on 2 cores.

Sizes are from 12,000 to 790,000 parameters without embedding and head. With equal tokens, each family gets a power law
with an asymptote L_inf and one without; with equal compute, a parabola in ln N, because a model that is too large for
its compute has seen too few tokens. Expected on tiny Shakespeare: twice the size lowers the loss by 2.3 % (LSTM) and
2.6 % (Transformer); the best sizes for 3e11 FLOPs are near 50,000 and 40,000 parameters.
"""

import pathlib

from experiments.frame.experiment import experiment_main, run_all
from experiments.frame.random_windows import random_windows_run
from experiments.frame.report import Report
from experiments.frame.token_folders import split_corpus
from experiments.scaling.cases import plan
from experiments.scaling.report import scaling_report
from experiments.scaling.settings import SMOKE, ScalingConfig


def train_sizes(config: ScalingConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report them."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1)
    runs = plan(config, data.tokenizer.vocabulary_size)
    amount = f"{len(runs)} runs of {config.tokens:,} characters or {config.compute:.2g} FLOPs"
    data.introduce(config.train, config.sequence_length + 1, amount)
    sizes = (data, config.batch_size, config.sequence_length)
    trainings = [
        random_windows_run(
            folder / f"{planned.family}-{planned.non_embedding_parameters}-{planned.budget}-seed{config.seed}",
            config,
            *(planned.family, planned.model_config, *sizes, planned.num_steps, planned.train),
        )
        for planned in runs
    ]
    rows = []
    for planned, (run, *_), row in zip(runs, trainings, run_all(trainings), strict=True):
        row = {"run": run.name, **row, "budget": planned.budget}
        row["non_embedding_parameters"] = planned.non_embedding_parameters
        rows.append({**row, "train_flops": planned.flops_per_token * row["train_tokens"]})
    return scaling_report(data.corpus.name, folder, rows)


main = experiment_main("scaling", ScalingConfig, SMOKE, train_sizes, __doc__)

if __name__ == "__main__":
    main()
