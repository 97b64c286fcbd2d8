"""An option that has no effect beside the others is refused before any work, on the command line of each experiment."""

import dataclasses
from typing import Annotated, Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.command import Machine
from keras_seq.commands.options import (
    CorpusName,
    check_effects,
    check_multiple,
    check_together,
    check_unique,
    command_line,
    num_steps,
    replaced,
)
from keras_seq.training import TrainConfig


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

    corpus: CorpusName = "pydoc"
    models: tuple[Literal["lstm", "gru"], ...] = ("lstm",)
    """Models."""
    match: Literal["tokens", "flops"] = "flops"
    """What is equal."""
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
    return command_line(Config, "script", "Question?", arguments, defaults, Machine)


def parse_all(arguments):
    return parse(*arguments)


@pytest.mark.parametrize("word", ["1_500_000", "1500000", "1500k", "1500K", "1.5M", "1.5e6", "0.0015B", "+1.5e+6"])
def test_an_integer_can_be_written_in_several_ways(word):
    assert parse("--tokens", word).tokens == 1_500_000


@pytest.mark.parametrize("word", ["2.5", "1.5e0", "x", "", "1e", "3m", "M", "nan", "1e999", "9" * 62, "0x10", "٣"])
def test_what_is_no_integer_is_told_with_examples(fails, word):
    assert f"{word}: expected an integer, such as 150000, 150k, 3M" in fails(parse_all, "--tokens", word)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--patience None", "patience", None),
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
    ("arguments", "words"),
    [
        ("--units 1", ("Unrecognized options: --units, 1", "--gru.units", "--lstm.units")),
        ("--modles lstm", ("Unrecognized options: --modles, lstm", "--models")),
        ("word", ("Unrecognized options: word",)),
        ("--models ltsm", ("invalid choice 'ltsm'", "--models", "lstm")),
        ("--factors 1 many", ("--factors", "many")),
        ("--lstm.units 0", ("units=0; expected at least 1",)),
    ],
)
def test_a_mistake_is_named_with_what_may_have_been_meant(fails, arguments, words):
    message = fails(parse_all, *arguments.split())
    assert all(word in message for word in words), message


def test_a_choice_that_is_the_name_of_a_number_hides_no_options():
    check_effects(Config(), ["--match", "flops", "--tokens", "5"])
    with pytest.raises(ValueError, match=r"^--gru\.units: it has no effect here; expected gru among the chosen"):
        check_effects(Config(), ["--gru.units", "5"])


@pytest.fixture
def shown(monkeypatch, capsys):
    """The help of a command line, 60 columns wide, as words."""

    def shown(*arguments):
        monkeypatch.setenv("COLUMNS", "60")
        with pytest.raises(SystemExit) as stop:
            parse(*arguments)
        assert stop.value.code == 0
        return " ".join(capsys.readouterr().out.replace("│", " ").split())

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


def test_help_says_what_the_docstrings_say(shown):
    text = shown("--help")
    for part in ("python -m script", "Question?", "Budget. (default: 10)", "Number of units. (default: 3)", "--jobs"):
        assert part in text


@dataclasses.dataclass(frozen=True)
class Nested:
    """Options."""

    tokens: int = 100
    models: tuple[str, ...] = ("lstm", "gru", "rnn")
    train: TrainConfig = dataclasses.field(default_factory=lambda: TrainConfig(validate_every=7))

    def __post_init__(self):
        check_unique("--models", self.models)


def test_a_value_replaces_a_dict_changes_inside_and_a_function_maps():
    old = Nested()
    new = replaced(old, {"tokens": 5, "models": lambda names: names[-2:], "train": {"log_every": 3}})
    assert new == Nested(5, ("gru", "rnn"), TrainConfig(validate_every=7, log_every=3))
    assert old == replaced(old, {}) == Nested()
    with pytest.raises(ValueError, match=r"^--models gru gru: expected one or more, each once\.$"):
        replaced(old, {"models": ("gru", "gru")})  # what is made is checked again
    with pytest.raises(AttributeError, match="no_option"):
        replaced(old, {"train": {"no_option": 1}})


@pytest.mark.parametrize(("run", "text", "fails"), [(None, None, 0), ("a", "b", 0), ("a", None, 1), (None, "", 1)])
def test_options_that_go_together(run, text, fails):
    if not fails:
        check_together("--run", run, "--text", text)
        return
    with pytest.raises(ValueError, match=r"^--run and --text go together: expected both or neither"):
        check_together("--run", run, "--text", text)


@pytest.mark.parametrize(("value", "fails"), [(8, 0), (16, 0), (0, 1), (12, 1), (-8, 1)])
def test_a_size_is_a_multiple(value, fails):
    if not fails:
        check_multiple("--width", value, 8)
        return
    with pytest.raises(ValueError, match=f"^--width {value}: expected a multiple of 8"):
        check_multiple("--width", value, 8)


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_steps_contain_the_tokens_and_no_step_is_superfluous(tokens, per_step):
    steps = num_steps(tokens, per_step)
    assert (steps - 1) * per_step < tokens <= steps * per_step
