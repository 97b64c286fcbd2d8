"""How much there is to read: files that a call runs through, base classes, lines, foreign private names.

`COUNTS` is the table. A change that needs a greater number writes it there and says why in its commit.
"""

import ast
import inspect
import json
import os
import pathlib
import subprocess
import sys

import pytest

from keras_seq import layers

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTED = {"_exit"}  # of `os`: an underscore and yet public
COUNTS = {  # what is counted: at most
    "files of LSTM(64)(x) on TensorFlow": 9,
    "files of TransformerBlock(...)(x) on TensorFlow": 14,
    "files of compare --smoke": 116,
    "classes of ours above a layer, itself included": 4,
    "lines of a file": 400,
    "lines of keras_seq": 38_760,
    "files of keras_seq": 214,
    "lines of experiments": 9_260,
    "files of experiments": 45,
    "lines of tests": 44_820,
    "foreign private names": 4,
}
CALLS = {
    "LSTM(64)(x)": "layers.LSTM(64)(x)",
    "TransformerBlock(...)(x)": "layers.TransformerBlock(num_heads=2, feed_forward_dim=16, causal=True)(x)",
}
TRACE = """
import json, sys, threading
root, files = sys.argv[1], set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_name != "<module>" and code.co_filename.startswith(root):
        files.add(code.co_filename[len(root):])
def ours():
    ours = [path for path in files if path.startswith(("keras_seq", "experiments")) and path.endswith(".py")]
    return json.dumps(sorted(ours))
"""
TRACE_CALLS = f"""{TRACE}
import keras  # which loads matplotlib where there is one
before = {{*sys.modules}}
import keras_seq
print(json.dumps(sorted({{*sys.modules}} - before)))
import numpy as np
from keras_seq import layers
x = np.ones((2, 10, 8), "float32")
for call in json.loads(sys.argv[2]):
    files.clear()
    sys.setprofile(note)
    eval(call)
    sys.setprofile(None)
    print(ours())
"""
TRACE_COMPARE = f"""{TRACE}
from experiments.compare.__main__ import main
import keras_seq.pretrained, keras_seq.training
threading.setprofile(note)
sys.setprofile(note)
try:
    main(["--smoke", "--log-dir", sys.argv[2]])
except SystemExit as end:
    assert not end.code
sys.setprofile(None)
print(ours())
"""


def printed_by(program, argument):
    """Return the lines of JSON that a program prints in a process of its own."""
    command = [sys.executable, "-c", program, f"{ROOT}{os.sep}", argument]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def python_files(folder):
    paths = {path.relative_to(ROOT): path for path in sorted((ROOT / folder).rglob("*.py"))}
    past = "records"  # of a speedrun
    return {name.as_posix(): path.read_text(encoding="utf-8") for name, path in paths.items() if past not in name.parts}


def test_an_import_loads_little_and_a_call_of_a_layer_runs_through_few_files():
    loaded, *of_calls = map(json.loads, printed_by(TRACE_CALLS, json.dumps([*CALLS.values()])))
    assert {"keras_seq.layers", "keras_seq.models"} <= {*loaded}
    unwanted = {"matplotlib", "tokenizers", "tyro", "tqdm", "safetensors", "tensorboard"}
    packages = ("training", "generation", "tokenizers", "data", "evaluation", "tracking")
    assert not {*unwanted, *(f"keras_seq.{package}" for package in packages)} & {*loaded}
    for call, files in zip(CALLS, of_calls, strict=True):
        assert 0 < len(files) <= COUNTS[f"files of {call} on TensorFlow"], files


@pytest.mark.rare
def test_a_comparison_runs_through_few_files(tmp_path):
    files = json.loads(printed_by(TRACE_COMPARE, str(tmp_path))[-1])
    assert len(files) <= COUNTS["files of compare --smoke"], files


def test_a_layer_has_few_base_classes():
    for name in layers.__all__:
        member = getattr(layers, name)
        if inspect.isclass(member):
            ours = [base.__name__ for base in member.__mro__ if base.__module__.startswith("keras_seq.")]
            assert len(ours) <= COUNTS["classes of ours above a layer, itself included"], ours


def test_files_are_of_a_size_to_read():
    for folder in ("keras_seq", "experiments"):
        sizes = {path: text.count("\n") for path, text in python_files(folder).items()}
        assert {path: size for path, size in sizes.items() if size > COUNTS["lines of a file"]} == {}
        assert len(sizes) <= COUNTS[f"files of {folder}"]
        assert sum(sizes.values()) <= COUNTS[f"lines of {folder}"]
    assert sum(text.count("\n") for text in python_files("tests").values()) <= COUNTS["lines of tests"]


def foreign_private_names():
    """Return the names with an underscore that the library takes from objects of others, with the places."""
    trees = {path: ast.parse(text) for path, text in python_files("keras_seq").items()}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    own = DOCUMENTED | {node.name for _, node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    found = {}
    for path, node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr not in own:
                found.setdefault(node.attr, []).append(f"{path}:{node.lineno}")
        elif isinstance(node, ast.ImportFrom) and not node.module.startswith("keras_seq"):
            for alias in node.names:
                if f".{node.module}.{alias.name}".count("._"):
                    found.setdefault(f"{node.module}.{alias.name}", []).append(f"{path}:{node.lineno}")
    return found


def test_few_private_names_of_others_are_used_and_each_has_its_reason():
    found = foreign_private_names()
    assert len(found) <= COUNTS["foreign private names"], found
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert [name for name in found if f"`{name}`" not in page] == []
