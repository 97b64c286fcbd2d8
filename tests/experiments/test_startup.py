import dataclasses
import os
import pathlib
import signal
import sys
from typing import Annotated, Literal

import numpy as np
import pytest
import tyro

from experiments.frame.option_types import CorpusNames
from experiments.frame.startup import command_line, exit_with_message
from keras_seq.training import TrainingDiverged, TrainingInterrupted


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("tokens=0;\n   expected more."), 2, "script: tokens=0; expected more.\n"),
        (FileNotFoundError(2, "No such file", "x"), 2, "script: x: No such file.\n"),
        (TrainingDiverged("The loss is nan."), 1, "script: The loss is nan.\n"),
        (KeyboardInterrupt(), 130, "\nStopped.\n"),
        (KeyboardInterrupt(signal.SIGTERM), 143, "\nStopped.\n"),
        (
            TrainingInterrupted(pathlib.Path("logs/compare/now/lstm-seed0/checkpoints/step-00000005.safetensors")),
            130,
            "\nStopped. A checkpoint is in logs/compare/now/lstm-seed0/checkpoints/step-00000005.safetensors\n"
            f"To resume: {os.path.relpath(sys.executable)} -m script --resume logs/compare/now\n",
        ),
        (
            TrainingInterrupted(pathlib.Path("a/now/x/checkpoints/step-00000005.safetensors"), signal.SIGTERM),
            143,
            "\nStopped. A checkpoint is in a/now/x/checkpoints/step-00000005.safetensors\n"
            f"To resume: {os.path.relpath(sys.executable)} -m script --resume a/now\n",
        ),
        (BlockingIOError(11, "another process trains there", "x"), 2, "script: x: another process trains there.\n"),
    ],
)
def test_each_end_has_its_status_and_its_sentence(capsys, error, code, sentence):
    with pytest.raises(SystemExit) as stop, exit_with_message("script"):
        raise error
    assert stop.value.code == code
    assert capsys.readouterr().err == sentence


def test_a_mistake_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), exit_with_message("script"):
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="broadcast"), exit_with_message("script"):
        np.broadcast_to(np.zeros(2), (3, 3))


@dataclasses.dataclass(frozen=True)
class Group:
    """Options of a model."""

    units: int = 3
    """Number of units."""
    learning_rate: float | None = None
    """A rate."""

    def __post_init__(self):
        if self.units < 1:
            raise ValueError(f"units={self.units}; expected at least 1.")


@dataclasses.dataclass(frozen=True)
class Config:
    """Options."""

    corpus: CorpusNames = "pydoc"
    """A text of
    --tokens."""
    models: tuple[Literal["lstm", "gru"], ...] = ("lstm",)
    """Models."""
    tokens: int = 10
    """Budget."""
    patience: int | None = 5
    """Patience."""
    out: str | None = None
    """A file."""
    factors: tuple[float, ...] = ()
    """Factors."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Tiny sizes."""
    lstm: Group = dataclasses.field(default_factory=Group)
    gru: Group = dataclasses.field(default_factory=lambda: Group(units=7))


def parse(*arguments, defaults=None):
    return command_line(Config, "script", "Question?", arguments, defaults)


@pytest.mark.parametrize("word", ["1_500_000", "1500000", "1500k", "1500K", "1.5M", "1.5e6", "0.0015B", "+1.5e+6"])
def test_an_integer_can_be_written_in_several_ways(word):
    assert parse("--tokens", word).tokens == 1_500_000


@pytest.mark.parametrize("word", ["2.5", "1.5e0", "x", "", "1e", "3m", "M", "nan", "1e999", "9" * 62, "0x10", "٣"])
def test_what_is_no_integer_is_told_with_examples(word):
    with pytest.raises(ValueError, match=r"^--tokens .*: expected an integer, such as 150000, 150k, 3M") as mistake:
        parse("--tokens", word)
    assert word in str(mistake.value)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--patience none", "patience", None),
        ("--patience 3", "patience", 3),
        ("--out none", "out", "none"),
        ("--factors 1 3e-1", "factors", (1.0, 0.3)),
        ("--factors", "factors", ()),
        ("--models gru lstm", "models", ("gru", "lstm")),
        ("--corpus a.txt", "corpus", "a.txt"),
        ("--corpus a.txt b.txt", "corpus", ("a.txt", "b.txt")),
        ("--lstm.units 2k", "lstm", Group(2000)),
    ],
)
def test_an_option_has_the_value_of_its_type(arguments, field, value):
    expected = dataclasses.replace(Config(), **{field: value})
    assert parse(*arguments.split()) == parse(defaults=expected) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--units 1", r"Unrecognized options: --units, 1; perhaps you meant --gru.units or --lstm.units"),
        ("--modles lstm", r"Unrecognized options: --modles, lstm; perhaps you meant --models"),
        ("--epochs 3", r"Unrecognized options: --epochs; perhaps you meant --tokens"),
        ("--dataset x", r"Unrecognized options: --dataset; perhaps you meant --corpus"),
        ("word", r"Unrecognized options: word"),
        ("--models ltsm", r"--models ltsm: expected one of lstm, gru; perhaps you meant lstm"),
        ("--factors 1 many", r"--factors many: expected a number, such as 0.003 or 3e-3"),
        ("--lstm.learning-rate high", r"--lstm.learning-rate high: expected a number, such as 0.003 or 3e-3"),
        ("--lstm.units 0", r"units=0; expected at least 1"),
    ],
)
@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_mistake_is_one_sentence_with_the_nearest_name(monkeypatch, capsys, arguments, message, columns):
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(ValueError, match=r"expected|Unrecognized") as mistake:
        parse(*arguments.split())
    assert str(mistake.value) == f"{message} (--help lists the options)."
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def shown(monkeypatch, capsys):
    """The help of a command line, 60 columns wide, as words."""

    def shown(*arguments, defaults=None):
        monkeypatch.setenv("COLUMNS", "60")
        with pytest.raises(SystemExit) as stop:
            parse(*arguments, defaults=defaults)
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 60
        return " ".join(text.replace("│", " ").split())

    return shown


def test_help_has_the_options_of_the_chosen_models(shown):
    for arguments, units in (
        (["--help"], {"lstm"}),
        (["-h", "--models", "gru"], {"gru"}),
        (["--help-all"], {"lstm", "gru"}),
        (["--models", "lstm", "gru", "--help"], {"lstm", "gru"}),
    ):
        text = shown(*arguments)
        assert {name for name in ("lstm", "gru") if f"--{name}.units" in text} == units
        assert ("--help-all also lists the options of" in text) == (len(units) == 1)
    assert "--gru.units" in shown("--help", defaults=dataclasses.replace(Config(), models=("gru",)))


def test_help_says_what_the_docstrings_say_without_words_of_python(shown):
    text = shown("--help", defaults=dataclasses.replace(Config(), tokens=77, gru=Group(9), models=("gru",)))
    assert text.startswith("Question? usage: python -m script")
    for part in ("A text of --tokens. (default: pydoc)", "Budget. (default: 77)", "Number of units. (default: 9)"):
        assert part in text
    assert not {"None", "(default: None)", "False", "{None}|INT"} & {*text.split()}
