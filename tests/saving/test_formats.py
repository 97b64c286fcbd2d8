"""As docs/exports.md says, each language model is exported to each format, and five to Hugging Face folders.

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
NEEDED = sorted({package for packages in PACKAGES.values() for package in packages})
MISSING = [package for package in NEEDED if importlib.util.find_spec(package) is None]


def save_keras(model, path):
    keras_seq.saving.save_model(model, path.with_suffix(".keras"))
    ids = np.zeros((1, 3), "int32")
    logits = [keras.ops.convert_to_numpy(m(ids)) for m in (model, keras.saving.load_model(path.with_suffix(".keras")))]
    np.testing.assert_array_equal(*logits)


def can_be_written(format, name, folder) -> bool:
    """Return whether a model goes into a format."""
    config = dataclasses.replace(SMALL[name], dropout=0.0)  # which no class of Mamba in transformers has
    model = config.build_model(VOCABULARY)
    path = folder / f"{name}-{format}"
    try:
        if format == "keras":
            save_keras(model, path)
        elif format == "hugging_face":
            pretrained.save(model, path, TOKENIZER)
        else:
            export(model, path.with_suffix(SUFFIXES[format]), format, tokenizer=TOKENIZER, lengths=(3,))
    except ValueError:
        return False
    return True


def formats_of(names, folder):
    """Return the formats that this process can write, for each of the models."""
    backend = keras.backend.backend()
    formats = [format for format, of_backend in BACKENDS.items() if of_backend == backend]
    formats += ("keras", "hugging_face") if backend == "tensorflow" else ()
    return {name: [format for format in formats if can_be_written(format, name, folder)] for name in names}


def formats_of_torch(names, folder):
    """Return the same for Keras's torch backend."""
    program = "from tests.saving.test_formats import main; main()"
    environment = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main():
    print(json.dumps(formats_of(sys.argv[2:], pathlib.Path(sys.argv[1]))))


@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")
@pytest.mark.slow  # several minutes
def test_each_model_goes_to_each_format_and_those_the_page_names_to_hugging_face(tmp_path):
    page = (ROOT / "docs/exports.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"computes the model: only (.*?) have one", page, flags=re.DOTALL)
    here, of_torch = formats_of(LANGUAGE_MODELS, tmp_path), formats_of_torch(LANGUAGE_MODELS, tmp_path)
    for name in LANGUAGE_MODELS:
        expected = {*BACKENDS, "keras", *(["hugging_face"] if f"`{name}`" in named else [])}
        assert {*here[name], *of_torch[name]} == expected, name
