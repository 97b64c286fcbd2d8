"""A mistyped option is named before Keras is imported; no right one is refused."""

import dataclasses
import os
import subprocess
import sys

import pytest

from experiments.frame import option_names
from tests.bad_input.options import EXPERIMENTS, options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--modles lstm", "--modles; perhaps you meant --models"),
        ("--modles=lstm --smoke", "--modles; perhaps you meant --models"),
        ("--train.learing-rate 0.1", "--train.learing-rate; perhaps you meant --train.learning-rate"),
        ("--lr 0.1", "--lr; perhaps you meant --train.learning-rate"),
        ("--seq_len 64", "--seq-len; perhaps you meant --sequence-length"),
        ("--frobnicate", "--frobnicate"),
    ],
)
@pytest.mark.parametrize("module", ["experiments.compare", "experiments.compare.__main__", "experiments"])
def test_a_name_that_no_option_has_is_refused_with_the_nearest(capsys, module, arguments, message):
    words = ["compare"] * (module == "experiments") + arguments.split()
    with pytest.raises(SystemExit) as stop:
        option_names.check_names(module, words)
    assert stop.value.code == 2
    expected = f"experiments.compare: Unrecognized options: {message} (--help lists the options).\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_option_of_an_experiment_is_refused(name):
    kind = EXPERIMENTS[name][1]
    words = [option for option, _ in options(kind)]
    for field in dataclasses.fields(kind):
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        if dataclasses.is_dataclass(default):
            words += [f"{field.name}.{option}" for option, _ in options(type(default))]
    words += ["help", "help-all", "resume", "jobs", "devices", "mesh", "shard-weights", "from", "train.no-use-ema"]
    spelled = [f"--{word}" for word in words] + [f"--{word.replace('_', '-')}=1" for word in words]
    option_names.check_names(f"experiments.{name}", [*spelled, "-h", "a word", "--", "--frobnicate"])


def test_a_process_with_a_mistyped_option_imports_no_keras():
    command = [sys.executable, "-X", "importtime", "-m", "experiments.compare", "--modles", "lstm"]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True)
    assert done.returncode == 2
    assert "perhaps you meant --models (--help lists the options)." in done.stderr
    assert "| keras" not in done.stderr.replace(" ", "")
