"""Adding an experiment is adding a file, and no other edit."""

import json
import os
import subprocess
import sys

import pytest

from keras_seq.training import load_language_model
from tests.experiments.discovery import ROOT

HELLO = '''"""What does a tiny LSTM say?

    python -m experiments.hello

Time: a minute on 2 cores.
"""

import dataclasses

from experiments.frame.experiment import experiment_main
from experiments.frame.option_checks import check_options
from experiments.frame.random_windows import train_on_random_windows
from experiments.frame.report import Report
from experiments.frame.settings import CorpusName, LogDir, Resume, Smoke
from experiments.frame.tables import Table
from experiments.frame.texts import SplitCorpus
from keras_seq import training
from keras_seq.models import LSTMConfig

MODEL = LSTMConfig(embedding_dim=4, units=8)


@dataclasses.dataclass(frozen=True)
class HelloConfig:
    """Train one LSTM."""

    corpus: CorpusName = "pydoc"
    steps: int = 1000
    """Training steps."""
    seed: int = 0
    """Random seed of the weights and batches."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=training.TrainConfig)

    def __post_init__(self):
        check_options(self, steps=1)


SMOKE = {"steps": 4, "train": {"warmup_steps": 1, "log_every": 2, "validate_every": 2, "checkpoint_every": 2}}


def hello(config, folder):
    """Train the LSTM and report its loss."""
    data, run = SplitCorpus(config.corpus, folder, min_length=9), folder / f"lstm-seed{config.seed}"
    data.introduce(config.train, 9, f"{config.steps} steps")
    result = train_on_random_windows(run, config, "lstm", MODEL, data, 4, 8, config.steps, config.train)
    table = Table([*result], [[str(value) for value in result.values()]])
    return Report("Hello", f"val_loss is {result['val_loss']:.3f}.", table, ("model", "val_loss"), [result], runs=[run])


main = experiment_main("hello", HelloConfig, SMOKE, hello, __doc__)

if __name__ == "__main__":
    main()
'''


@pytest.fixture
def python(tmp_path):
    """A tree of the same experiments and a new one, in which `python ...` runs."""
    (tmp_path / "experiments").mkdir()
    for path in (ROOT / "experiments").iterdir():
        (tmp_path / "experiments" / path.name).symlink_to(path)
    (tmp_path / "experiments/hello.py").write_text(HELLO)
    (tmp_path / "text.txt").write_text("To be, or not to be, that is the question.\n" * 9)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    environment = {name: value for name, value in environment.items() if not name.startswith("TF_")}

    def python(*arguments):
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return python


@pytest.mark.smoke
def test_a_new_file_is_listed_trains_reports_and_resumes(python, tmp_path):
    listed = python("-m", "experiments")
    assert "hello" in listed
    assert "What does a tiny LSTM say?" in listed
    said = python("-m", "experiments.hello", "--smoke", "--corpus", "text.txt")
    (folder,) = (tmp_path / "logs/hello").iterdir()
    (row,) = json.loads((folder / "hello.json").read_text(encoding="utf-8"))
    verdict = f"val_loss is {row['val_loss']:.3f}."
    assert verdict in said
    assert verdict in (folder / "hello.md").read_text(encoding="utf-8")
    model, _ = load_language_model(folder / "lstm-seed0")
    assert model.count_params() == row["parameters"]
    assert verdict in python("-m", "experiments.hello", "--resume", folder)
