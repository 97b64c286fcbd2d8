"""Which optimizer is best for the same small model, each at learning rates below and above its default?

    python -m experiments.optimizers                               # a Transformer, on Python's help topics
    python -m experiments.optimizers --model lstm --corpus shakespeare
    python -m experiments.optimizers --optimizers adam lion --factors 0.1 0.3 1 3 10
    python -m experiments.optimizers --smoke                       # seconds, tiny sizes: test that everything works

Time: 7 to 9 minutes for 24 runs on 2 cores.

Learning rates are chosen by the loss of text held out from the training split; the validation split is only scored at
the end of every run. Schedule, clipping, batches and initial weights are the same for all. Expected val_loss of the
Transformer: muon 1.46, adam 1.55, others 1.61 to 1.81 nats per character (docs/experiments.md).
"""

import dataclasses
import pathlib

from experiments.frame.experiment import experiment_main
from experiments.frame.random_windows import train_on_random_windows
from experiments.frame.report import Report
from experiments.frame.texts import SplitCorpus
from experiments.frame.token_folders import split_corpus
from experiments.optimizers.report import optimizers_report
from experiments.optimizers.settings import SMOKE, OptimizersConfig
from keras_seq import training


def train_one(run: pathlib.Path, config: OptimizersConfig, train: training.TrainConfig, data: SplitCorpus) -> dict:
    """Train the model with one optimizer at one learning rate; a run that diverges is a result too."""
    sizes = (config.batch_size, config.sequence_length, config.steps)
    try:
        return train_on_random_windows(run, config, config.model, config.model_config, data, *sizes, train)
    except training.TrainingDiverged as error:
        print(error)
        result = {"learning_rate": train.learning_rate, "held_out_loss": None, "val_loss": None, "diverged": str(error)}
        result["train_tokens"] = error.step * config.batch_size * config.sequence_length
        training.write_result(run, result)
        return {"run": run.name, **result}


def sweep(config: OptimizersConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    data = split_corpus(config.corpus, folder, config.sequence_length + 1, held_out=True)
    model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    plan = f"{config.model} of {model.count_params():,} parameters, {config.steps:,} steps a run"
    data.introduce(config.train, config.sequence_length + 1, plan, data.held_out)
    rows = []
    for optimizer in config.optimizers:
        default = dataclasses.replace(config.train, optimizer=optimizer).peak_learning_rate(model)
        for factor in sorted(config.factors):
            rate = float(f"{factor * default:.3g}")
            train = dataclasses.replace(config.train, optimizer=optimizer, learning_rate=rate)
            run = folder / f"{optimizer}-{rate:g}-seed{config.seed}"
            result = train_one(run, config, train, data)
            rows.append({"optimizer": optimizer, "factor": factor, "diverged": None, **result})
    return optimizers_report(f"{config.model} on {data.corpus.name}", folder, rows)


main = experiment_main("optimizers", OptimizersConfig, SMOKE, sweep, __doc__)

if __name__ == "__main__":
    main()
