"""`python -m experiments`: what it lists, and what it runs."""

import shutil
import subprocess
import sys

import pytest

from experiments import __main__ as listing
from experiments.frame.catalog import docstrings, summary
from tests.experiments.conftest import ROOT

NEW = '''"""Does it run?

    python -m experiments.new

Time: seconds.
"""

import sys

NAME = "the new one"


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
def test_the_list_has_all_experiments_and_tools_within_the_width_of_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, listing.listing().splitlines())) <= columns
    experiments, data, tools, _ = listing.listing().split("\n\n")
    for name, docstring in docstrings().items():
        group = tools if name in {"export", "generate", "inspect_model", "score_text"} else experiments
        group = data if name == "prepare" else group
        assert f" {name} {summary(docstring)}" in " ".join(group.split())


@pytest.mark.parametrize(("name", "nearest"), [("compair", "; perhaps you meant compare"), ("nothing_alike", "")])
def test_an_unknown_name_is_one_sentence(capsys, name, nearest):
    with pytest.raises(SystemExit) as stop:
        listing.main([name, "--smoke"])
    assert stop.value.code == 2
    expected = f"experiments: {name}: expected the name of an experiment{nearest} (python -m experiments lists them).\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_new_experiment_is_a_file_or_a_folder_and_no_other_edit(tmp_path, is_folder):
    package = tmp_path / "experiments"
    shutil.copytree(ROOT / "experiments" / "frame", package / "frame")
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(ROOT / "experiments" / name, package)
    if is_folder:
        (package / "new").mkdir()
        (package / "new" / "__main__.py").write_text(NEW)
    else:
        (package / "new.py").write_text(NEW)

    def python(*arguments):
        return subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True).stdout

    assert "Experiments:\n  new                Does it run? Time: seconds.\n" in python("-m", "experiments")
    for command in (["experiments.new"], ["experiments", "new"], ["experiments", "experiments.new"]):
        assert python("-m", *command, "--smoke") == "the new one ['--smoke']\n"
