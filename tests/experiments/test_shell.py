import pathlib
import shlex
import subprocess
import sys

import pytest

from experiments.frame.report import tensorboard_command
from experiments.frame.shell import command, python

ODD = ["a b", "$(touch PWN)", "it's", 'say "x"', "a;b", "&", "ü", "a\nb", "*", "~", "#x"]


@pytest.mark.parametrize("name", ODD)
def test_a_shell_takes_each_word_as_it_is(name):
    echo = command(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", name, pathlib.Path(name, name))
    done = subprocess.run(["sh", "-c", echo], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ascii([name, f"{name}/{name}"])


def test_a_path_is_no_option():
    assert command("tensorboard", "--logdir", pathlib.Path("-x/now")) == "tensorboard --logdir ./-x/now"
    assert python("-m", "x", pathlib.Path("a/-x")).endswith(" -m x a/-x")


def test_the_python_that_runs_may_be_in_an_odd_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    assert python("-V") == "'my env/bin/python' -V"


def test_the_line_for_tensorboard_is_quoted():
    line = tensorboard_command(pathlib.Path("logs $(touch PWN)/now"))
    assert shlex.split(line)[-2:] == ["--logdir", "logs $(touch PWN)/now"]
