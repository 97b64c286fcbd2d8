"""`keras-seq` itself: what it lists, and mistakes that it finds before Keras is imported."""

import ast
import importlib
import re

import pytest

from keras_seq import commands
from keras_seq.commands import COMMANDS, FOLDER, NEEDED, listing, main
from tests.processes import run_without


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_it_lists_all_commands(arguments, capsys):
    main(arguments)
    said = capsys.readouterr().out
    assert said == f"{listing()}\n"
    for name in COMMANDS:
        docstring = importlib.import_module(f"keras_seq.commands.{name}").__doc__
        assert re.search(rf"^  {name} +{re.escape(docstring.splitlines()[0])}$", said, re.MULTILINE)
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_what_the_command_does_and_examples(name):
    docstring = ast.get_docstring(ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")))
    what, examples, *_ = docstring.split("\n\n")
    assert what.endswith(".")
    assert all(line.lstrip().startswith(("keras-seq", "echo ")) for line in examples.splitlines())
    assert f"    keras-seq {name} " in docstring


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("trian a.txt", f"keras-seq: trian: expected {', '.join(COMMANDS)}; perhaps you meant train."),
        ("frobnicate", f"keras-seq: frobnicate: expected {', '.join(COMMANDS)}."),
        ("train a.txt --modle x", "keras-seq train: --modle is no option; perhaps you meant --model. keras-seq train"),
    ],
)
def test_a_mistake_is_found_without_keras(tmp_path, words, sentence):
    done = run_without(["keras", "tensorflow", "numpy"], tmp_path, "-m", "keras_seq", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


def test_the_list_needs_no_keras(tmp_path):
    done = run_without(["keras", "tensorflow", "numpy", *NEEDED], tmp_path, "-m", "keras_seq", "--help")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{listing()}\n")


@pytest.mark.parametrize("package", NEEDED)
def test_a_package_that_is_missing_is_named_with_what_to_install(package, monkeypatch, capsys):
    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(SystemExit) as stop:
        main(["train", "my.txt"])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.startswith(f"keras-seq: {package} is not installed in ")
    assert said.endswith(': pip install "keras_seq[command]".\n')
