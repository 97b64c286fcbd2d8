"""The notebooks run whole, and are kept with the outputs of such a run."""

import importlib
import json
import re

import pytest

from tests.processes import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OF_A_MACHINE = re.compile(r"(?<![\w.<])/(?:home|mnt|opt|private|root|tmp|usr|Users|var|work)/|\b[A-Z]:\\")
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def kept(path):
    return json.loads(path.read_text(encoding="utf-8"))


def executed_cells(notebook):
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in cells if "skip-execution" not in cell["metadata"].get("tags", [])]


def kinds(cell):
    """Return what a cell shows: "stream" or the types of its values, such as "text/html"."""
    return {kind for output in cell["outputs"] for kind in output.get("data", [output["output_type"]])}


def check_outputs(notebook):
    """Refuse exceptions, warnings and paths of the machine that a notebook was executed on."""
    for cell in executed_cells(notebook):
        assert "error" not in kinds(cell)
        values = [
            value for output in cell["outputs"] for value in output.get("data", {"text/": output.get("text")}).items()
        ]
        for text in ("".join(text) for kind, text in values if kind.startswith("text/")):
            assert "Traceback" not in text
            assert not re.search(r"\w*Warning:.*", text), text
            assert not OF_A_MACHINE.search(text), OF_A_MACHINE.search(text)


@every_notebook
def test_a_notebook_is_kept_with_its_outputs(path):
    notebook = kept(path)
    cells = executed_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert set().union(*map(kinds, cells)) > {"stream"}
    check_outputs(notebook)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook["metadata"] == {"kernelspec": kernel, "language_info": {"name": "python"}}
    assert {key for cell in notebook["cells"] for key in cell["metadata"]} <= {"tags"}


@every_notebook
def test_a_notebook_says_what_it_shows_how_long_it_takes_and_opens_in_colab(path):
    first = "".join(kept(path)["cells"][0]["source"])
    assert first.startswith("# ")
    assert re.search(r"^Time: \d minutes on 2 CPU cores\.$", first, re.MULTILINE)
    assert f"https://colab.research.google.com/github/OWNER/keras_seq/blob/main/notebooks/{path.name}" in first
    assert '%pip install "keras_seq[command,tensorflow] @ git+https://github.com/OWNER/keras_seq"' in first


@pytest.mark.smoke
@every_notebook
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    for package in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(package, reason='notebooks need pip install -e ".[test]"')
    monkeypatch.syspath_prepend(ROOT / "notebooks")
    notebook = importlib.import_module("execute").execute(path, tmp_path, smoke=True)
    check_outputs(notebook)
    # what is kept is of these cells
    assert [*map(kinds, executed_cells(notebook))] == [*map(kinds, executed_cells(kept(path)))]
