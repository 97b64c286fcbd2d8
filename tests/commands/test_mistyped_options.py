"""The options that are known before Keras is imported are those that tyro knows afterwards."""

import dataclasses
import importlib
import re
import typing

import pytest
import tyro

from keras_seq.commands import COMMANDS
from keras_seq.commands.mistyped_options import HINTS, check_words, option_names
from keras_seq.models import LANGUAGE_MODELS


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_known_and_no_others(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    module = importlib.import_module(f"keras_seq.commands.{command}")
    with pytest.raises(SystemExit):
        module.main(["--help-all"])
    listed = re.findall(r"^[│ ]{1,3}((?:-h, )?--\w[\w.-]*(?:, --[\w.-]+)*)", capsys.readouterr().out, re.MULTILINE)
    options = {name for names in listed for name in re.findall(r"--([\w.-]+)", names)}
    assert len(options) > 1
    for option in options:
        assert check_words(command, [f"--{option}", "1"]) is None
        assert check_words(command, [f"--{option.replace('-', '_')}=1"]) is None
    (config,) = (value for name, value in vars(module).items() if name.endswith("Config") and is_own(value, module))
    fields = {field.name.replace("_", "-"): field.type for field in dataclasses.fields(config)}
    positional = {name for name, kind in fields.items() if tyro.conf.Positional in typing.get_args(kind)}
    groups = {option.rpartition(".")[0] for option in options} | {"sampling"}
    assert option_names(command) - options <= positional | groups | {"help-all"}
    if command == "train":
        assert {"train", *(name.replace("_", "-") for name in LANGUAGE_MODELS)} <= groups


def is_own(value, module):
    return isinstance(value, type) and value.__module__ == module.__name__


@pytest.mark.parametrize(
    ("command", "words", "sentence"),
    [
        (
            "train",
            "a.txt --modle gru",
            "--modle is no option; perhaps you meant --model. keras-seq train --help lists ",
        ),
        ("train", "a.txt --lstm.unit=3", "--lstm.unit is no option; perhaps you meant --lstm.units."),
        ("train", "a.txt --epochs 3", "--epochs is no option; --tokens is the length of a training, in characters"),
        ("train", "a.txt --learning_rate 1", "--learning_rate is no option; it is --train.learning-rate."),
        ("generate", "RUN --temprature 1", "--temprature is no option; perhaps you meant --temperature."),
        ("generate", "RUN --length 5", "--length is no option; it is --max-new-tokens."),
        ("score", "RUN --xyz", "--xyz is no option. keras-seq score --help lists them."),
        ("train", "a.txt --train.no-use-emma", "--train.no-use-emma is no option; perhaps you meant --train.use-ema"),
    ],
)
def test_a_mistyped_option_is_named_with_the_nearest(command, words, sentence):
    assert check_words(command, words.split()).startswith(sentence)


@pytest.mark.parametrize(
    "words", ["my.txt --train.no-use-ema", "a --help", "-h", "a -- b", "a --model=lstm --lstm.units 3", "a -x"]
)
def test_what_can_be_meant_is_left_to_the_parser(words):
    assert check_words("train", words.split()) is None


def test_no_hint_is_for_an_option_that_there_is():
    for command, hints in HINTS.items():
        assert not hints.keys() & option_names(command)
        for hint in hints.values():
            assert {name.rstrip(".,") for name in re.findall(r"--([\w.-]+)", hint)} <= option_names(command)
