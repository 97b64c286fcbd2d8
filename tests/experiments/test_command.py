import dataclasses
import os
import signal
import subprocess
import sys
import traceback

import keras
import pytest

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import LogDir, Resume, Smoke
from keras_seq.data import Corpus
from keras_seq.models import LSTMConfig
from keras_seq.reports.tables import Report, Table
from keras_seq.runs.folders import run_config
from tests.experiments.discovery import ROOT


@dataclasses.dataclass(frozen=True)
class HelloConfig:
    """Options."""

    name: str = "world"
    """Name."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False

    def __post_init__(self):
        if not self.name.isalpha():
            raise ValueError(f"--name {self.name}: expected letters.")


@pytest.fixture
def hello(tmp_path):
    """Run an experiment that answers with `answer(settings, folder)`."""

    def hello(answer, *arguments):
        main = experiment_main("hello", HelloConfig, {"name": "mouse"}, answer, "What is said?\n\nTime: none.")
        main([*arguments, "--log-dir", str(tmp_path / "logs")])

    return hello


def a_report(settings, folder, failures=()):
    return Report(f"Hello {settings.name}", "It works.", Table(["a"], [["1"]]), ("a",), [], failures=failures)


def test_a_report_is_written_and_told(hello, tmp_path, capsys):
    hello(a_report, "--smoke")
    (folder,) = (tmp_path / "logs/hello").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["hello.json", "hello.md"]
    assert (folder / "hello.md").read_text(encoding="utf-8").startswith("# Hello mouse\n\nIt works.\n")
    assert "It works." in capsys.readouterr().out


def test_a_smoke_run_has_its_sizes_but_for_the_options_that_are_given(hello):
    said = []
    for options in ((), ("--smoke",), ("--smoke", "--name", "cat"), ("--name", "cat", "--smoke")):
        hello(lambda settings, folder: said.append(settings.name) or a_report(settings, folder), *options)
    assert said == [HelloConfig.name, "mouse", "cat", "cat"]


def test_failures_are_an_exit_status_and_sentences_after_the_report(hello, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        hello(lambda settings, folder: a_report(settings, folder, ["It leaks.", "So does that."]))
    output = capsys.readouterr()
    assert (stop.value.code, output.err) == (1, "It leaks.\nSo does that.\n")
    assert "It works." in output.out
    assert [*tmp_path.glob("logs/hello/*/hello.md")]


def test_a_text_is_printed_and_nothing_is_left(hello, tmp_path, capsys):
    hello(lambda settings, folder: f"hello {settings.name}")
    assert capsys.readouterr().out == "hello world\n"
    assert not (tmp_path / "logs").exists()


def test_a_mistake_is_a_sentence_and_nothing_is_left(hello, tmp_path, fails, capsys):
    fails(lambda arguments: hello(a_report, *arguments), "--name", "7")
    assert not (tmp_path / "logs").exists()


def test_a_run_is_trained_once_from_its_seed(tmp_path):
    def train_one(run):
        run.mkdir()
        training.write_result(run, {"drawn": float(keras.random.normal(()))})
        return training.load_result(run)

    first = [run_once(tmp_path / name, 3, lambda name=name: train_one(tmp_path / name)) for name in "ab"]
    assert first[0] == first[1]
    assert run_once(tmp_path / "c", 4, lambda: train_one(tmp_path / "c")) != first[0]
    assert run_once(tmp_path / "a", 5, lambda: pytest.fail("trained again")) == first[0]


def test_a_value_error_while_training_is_no_mistake_of_the_user(tmp_path):
    def fail():
        raise ValueError("logits and labels differ.")

    with pytest.raises(RuntimeError, match=r"^lstm-seed0 failed while training") as bug, exit_with_message("script"):
        run_once(tmp_path / "lstm-seed0", 0, fail)
    assert "in fail" in "".join(traceback.format_exception(bug.value))
    assert "logits and labels differ" in "".join(traceback.format_exception(bug.value))


def test_a_folder_that_cannot_be_resumed_is_one(tmp_path, capsys):
    def refuse():
        raise training.CheckpointError("config.json is corrupt: remove the folder.")

    with pytest.raises(SystemExit) as stop, exit_with_message("script"):
        run_once(tmp_path / "lstm-seed0", 0, refuse)
    assert (stop.value.code, capsys.readouterr().err) == (2, "script: config.json is corrupt: remove the folder.\n")


def test_the_config_of_a_run_says_what_it_is_made_of():
    config, train = LSTMConfig(embedding_dim=2, units=3), training.TrainConfig()
    corpus = Corpus("text", "to be", sha256="ab")
    whole = run_config(HelloConfig("tim"), "lstm", config, train, config.build_model(5), corpus, seed=4)
    assert whole["experiment"]["name"] == "tim"
    assert (whole["model"]["name"], whole["model"]["units"], whole["seed"]) == ("lstm", 3, 4)
    assert whole["corpus"] == {"name": "text", "sha256": "ab"}
    assert whole["train"]["learning_rate"] == train.peak_learning_rate(config.build_model(5))
    assert "corpus" not in run_config(HelloConfig(), "lstm", config, train)


def comparison(logs, **options):
    """A small comparison that has validated once, of two models and two validations each."""
    command = [sys.executable, "-m", "experiments.compare", "--smoke", "--log-dir", str(logs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes, **options)
    for line in process.stdout:
        if "   validation: " in line:
            return process
    raise AssertionError(process.stderr.read())


def ignore_closed_terminal():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def weights(folder):
    return (folder / "checkpoints/step-00000020.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["a closed terminal", "nobody reads"])
def test_a_comparison_without_terminal_or_reader_stops_with_a_checkpoint_and_resumes(tmp_path, smoke, python, end):
    with comparison(tmp_path) as process:
        if end == "a closed terminal":
            process.send_signal(signal.SIGHUP)
        else:
            process.stdout.close()
        stderr = process.stderr.read()
    assert process.returncode == 128 + (signal.SIGHUP if end == "a closed terminal" else signal.SIGPIPE)
    assert "Traceback" not in stderr
    (folder,) = (tmp_path / "compare").iterdir()
    assert f"To resume: {os.path.relpath(sys.executable)} -m experiments.compare --resume {folder}\n" in stderr
    assert list((folder / "lstm-seed0/checkpoints").glob("step-*"))
    process = python("-m", "experiments.compare", "--resume", folder)
    assert (process.returncode, process.stderr) == (0, "")
    assert weights(folder / "lstm-seed0") == weights(smoke.folder / "lstm-seed0")


@pytest.mark.slow
def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path):
    process = comparison(tmp_path, preexec_fn=ignore_closed_terminal)
    process.send_signal(signal.SIGHUP)
    stdout, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, "")
    assert "transformer-seed0" in stdout
