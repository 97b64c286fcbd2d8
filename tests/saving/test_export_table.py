"""The table of docs/exports.md says which formats hold which language models: each model is exported to each of them.

PyTorch's formats are written by a process of its own, once for all models.
"""

import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_seq
from keras_seq import pretrained
from keras_seq.models import LANGUAGE_MODELS
from keras_seq.saving import export
from keras_seq.saving.exporter import BACKENDS, PACKAGES, SUFFIXES
from keras_seq.tokenizers import CharacterTokenizer
from tests.models.test_language_model import SMALL, VOCABULARY
from tests.processes import ROOT

TOKENIZER = CharacterTokenizer("abcdefghijk")
COLUMNS = {"page": "page", "ONNX": "onnx", "torch": "torch", "LiteRT": "litert", "SavedModel": "saved_model"}
OTHERS = (".keras", "Hugging Face")
NEEDED = sorted({package for packages in PACKAGES.values() for package in packages})
MISSING = [package for package in NEEDED if importlib.util.find_spec(package) is None]


def save_keras(model, path):
    keras_seq.saving.save_model(model, path.with_suffix(".keras"))
    ids = np.zeros((1, 3), "int32")
    logits = [keras.ops.convert_to_numpy(m(ids)) for m in (model, keras.saving.load_model(path.with_suffix(".keras")))]
    np.testing.assert_array_equal(*logits)


def can_be_written(column, name, folder) -> bool:
    """Return whether a model goes into the format of a column."""
    config = dataclasses.replace(SMALL[name], dropout=0.0)  # which no class of Mamba in transformers has
    model = config.build_model(VOCABULARY)
    path = folder / f"{name}-{column.replace(' ', '-')}"
    try:
        if column == ".keras":
            save_keras(model, path)
        elif column == "Hugging Face":
            pretrained.save(model, path, TOKENIZER)
        else:
            format = COLUMNS[column]
            export(model, path.with_suffix(SUFFIXES[format]), format, tokenizer=TOKENIZER, lengths=(3,))
    except ValueError:
        return False
    return True


def formats_of(names, folder):
    """Return the columns that this process can write, for each of the models."""
    backend = keras.backend.backend()
    columns = [column for column, format in COLUMNS.items() if BACKENDS[format] == backend]
    columns += OTHERS if backend == "tensorflow" else ()
    return {name: {column: can_be_written(column, name, folder) for column in columns} for name in names}


def formats_of_torch(names, folder):
    """Return the same for Keras's torch backend."""
    program = "from tests.saving.test_export_table import main; main()"
    environment = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main():
    print(json.dumps(formats_of(sys.argv[2:], pathlib.Path(sys.argv[1]))))


def table():
    """Return the cells of the page's table."""
    page = (ROOT / "docs/exports.md").read_text(encoding="utf-8")
    page = page.split("## Which formats hold which models")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in re.findall(r"^\|.*\|$", page, flags=re.MULTILINE)]
    head, _, *rows = [[cell.strip() for cell in row] for row in rows]
    assert {cell for row in rows for cell in row[1:]} == {"yes", "no"}
    return {
        name.strip("`"): {column: cell == "yes" for column, cell in zip(head[1:], cells, strict=True)}
        for name, *cells in rows
    }


def test_the_table_has_all_models_and_formats():
    assert [*table()] == [*LANGUAGE_MODELS]
    assert {*COLUMNS.values()} == {*BACKENDS}
    for cells in table().values():
        assert {*cells} == {*COLUMNS, *OTHERS}


@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
@pytest.mark.slow  # several minutes
def test_the_table_is_true(tmp_path):
    here, of_torch = formats_of(LANGUAGE_MODELS, tmp_path), formats_of_torch(LANGUAGE_MODELS, tmp_path)
    assert {name: {**here[name], **of_torch[name]} for name in LANGUAGE_MODELS} == table()
