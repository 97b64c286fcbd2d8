"""How much of its past does a model use? Loss by position of LSTMs and Transformers, on windows of 64 to 512.

    python -m experiments.loss_by_position                             # Python's docstrings, offline
    python -m experiments.loss_by_position --corpus shakespeare
    python -m experiments.loss_by_position --sequence-lengths 64 1024
    python -m experiments.loss_by_position --smoke                     # tiny sizes, takes seconds

Time: 23 minutes on 2 cores, more than half of it for windows of 512.

Kaplan et al. (2020, https://arxiv.org/abs/2001.08361, figure 7) found that the loss of LSTMs stops falling after some
hundred tokens of context, while that of Transformers keeps falling. Expected at 0.35 million parameters, on tiny
Shakespeare: both are flat, within 0.006 nats from 32-64 characters of past to 256-512 (docs/experiments.md).
"""

import functools
import itertools
import pathlib

from experiments.frame.experiment import experiment_main
from experiments.frame.random_windows import train_on_random_windows
from experiments.frame.report import Report
from experiments.frame.token_folders import split_corpus
from experiments.loss_by_position.report import loss_by_position_report
from experiments.loss_by_position.scores import position_scores
from experiments.loss_by_position.settings import FAMILIES, SMOKE, LossByPositionConfig


def sweep(config: LossByPositionConfig, folder: pathlib.Path) -> Report:
    """Train both families on windows of every length, where they are not finished in `folder`, and report them."""
    data = split_corpus(config.corpus, folder, min_length=4 * config.max_length + 1)  # two blocks of scores
    configs = {family: config.model_config(family, config.max_length) for family in FAMILIES}
    counts = {name: c.build_model(data.tokenizer.vocabulary_size).count_params() for name, c in configs.items()}
    sizes = " and ".join(f"{name} of {count:,} parameters" for name, count in counts.items())
    plan = f"{sizes}, {config.steps:,} steps of {config.batch_tokens:,} characters a run"
    data.introduce(config.train, config.max_length + 1, plan)
    finish, rows = functools.partial(position_scores, ids=data.validation, lengths=config.sequence_lengths), []
    for length, family in itertools.product(sorted(config.sequence_lengths), FAMILIES):
        run, model_config = folder / f"{family}-{length}-seed{config.seed}", config.model_config(family, length)
        sizes = (config.batch_tokens // length, length, config.steps)
        rows.append(train_on_random_windows(run, config, family, model_config, data, *sizes, config.train, finish))
    return loss_by_position_report(data.corpus.name, folder, rows)


main = experiment_main("loss_by_position", LossByPositionConfig, SMOKE, sweep, __doc__)

if __name__ == "__main__":
    main()
