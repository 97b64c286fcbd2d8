"""`python -m experiments`: what it lists, and what it runs."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from experiments import __main__ as listing
from experiments.common.catalog import docstrings, summary
from keras_seq.training import load_language_model
from tests.experiments.discovery import ROOT

NEW = '''"""Does it run?

    python -m experiments.new

Time: seconds.
"""

import sys

from experiments.new.settings import NAME


def main(arguments=None):
    print(NAME, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
'''


@pytest.mark.parametrize(("name", "docstring"), docstrings().items(), ids=docstrings())
def test_every_experiment_says_its_question_its_command_and_its_time(name, docstring):
    question, time = summary(docstring).split(" Time: ")
    assert question.endswith((".", "?"))
    assert docstring.startswith(f"{question}\n\n")
    assert f"python -m experiments.{name}" in docstring
    assert 0 < len(time) < 80


@pytest.mark.parametrize("columns", [70, 120])
def test_the_list_has_all_experiments_within_the_width_of_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, listing.listing().splitlines())) <= columns
    experiments, usage = listing.listing().split("\n\n")
    assert "keras-seq" in usage
    for name, docstring in docstrings().items():
        assert f" {name} {summary(docstring)}" in " ".join(experiments.split())


@pytest.mark.parametrize(("name", "nearest"), [("compair", "; perhaps you meant compare"), ("nothing_alike", "")])
def test_an_unknown_name_is_one_sentence(capsys, name, nearest):
    with pytest.raises(SystemExit) as stop:
        listing.main([name, "--smoke"])
    assert stop.value.code == 2
    expected = f"experiments: {name}: expected the name of an experiment{nearest} (python -m experiments lists them).\n"
    assert capsys.readouterr() == ("", expected)


def test_a_new_experiment_is_a_folder_and_no_other_edit(tmp_path):
    package = tmp_path / "experiments"
    shutil.copytree(ROOT / "experiments" / "common", package / "common")
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "experiments" / name, package)
    (package / "new").mkdir()
    (package / "new" / "__main__.py").write_text(NEW)
    (package / "new" / "settings.py").write_text("NAME = 'the new one'")

    def python(*arguments):
        return subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True).stdout

    assert "Experiments:\n  new                Does it run? Time: seconds.\n" in python("-m", "experiments")
    for command in (["experiments.new"], ["experiments", "new"], ["experiments", "experiments.new"]):
        assert python("-m", *command, "--smoke") == "the new one ['--smoke']\n"


HELLO = '''"""What does a tiny LSTM say?

    python -m experiments.hello

Time: a minute on 2 cores.
"""

import dataclasses

from experiments.common.command import experiment_main
from experiments.common.random_windows import train_on_random_windows
from keras_seq import training
from keras_seq.commands.options import CorpusName, LogDir, Resume, Smoke, check_options
from keras_seq.models import LSTMConfig
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.texts import SplitCorpus

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
