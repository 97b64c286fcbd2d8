"""docs/onnx_generate.py and .mjs write what `keras_seq.generate` writes, with NumPy and onnxruntime alone.

The JavaScript runs in Node where the package onnxruntime-web is: in the folder `node_modules` of the clone, or in the
one that the variable NODE_PATH names.
"""

import functools
import http.server
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import threading

import pytest

import keras_seq
from keras_seq.models.config import tiny_config
from keras_seq.saving.exporter import PACKAGES
from keras_seq.tokenizers import CharacterTokenizer
from tests.conftest import often, randomized
from tests.processes import ROOT, run_without

MISSING = [name for name in PACKAGES["onnx"] if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.any_backend, pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")]

KNOWN = "\n abcdé𝄞"  # one of them is two units of JavaScript's strings
TOKENIZERS = {  # a cache that is full twice, one state of each kind, and ids of their own for unknown characters
    "transformer": CharacterTokenizer(KNOWN),
    "lstm": CharacterTokenizer(KNOWN, oov_token="[UNK]"),
    "mamba2": CharacterTokenizer(KNOWN),
    "hybrid": CharacterTokenizer(KNOWN),
}
PROMPTS = {name: "a 𝄞é?" if tokenizer.oov_token else "a 𝄞é" for name, tokenizer in TOKENIZERS.items()}
LONG_PROMPT = "abcd é\n" * 3
COUNT = 30
every_file = often("name", list(TOKENIZERS), ("transformer",))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    @functools.cache
    def exported(name):
        """Return the path of a small model with random weights, and the model."""
        path = tmp_path_factory.mktemp(name) / "model.onnx"
        model = tiny_config(name, context_length=9).build_model(TOKENIZERS[name].vocabulary_size)
        randomized(model, seed=4, scale=1.0)
        keras_seq.export(model, path, tokenizer=TOKENIZERS[name])
        return path, model

    return exported


def expected_text(model, name, prompt):
    text = keras_seq.generate(model, TOKENIZERS[name], prompt, max_new_tokens=COUNT, temperature=0)
    assert len({*text[len(prompt) :]}) > 2  # not one character again and again
    return text


def check_texts(run, model, name):
    """Check the texts of `run(prompt, temperature)`: ours at temperature 0, else as many characters."""
    for prompt in (PROMPTS[name], LONG_PROMPT):
        assert run(prompt, 0) == expected_text(model, name, prompt) + "\n"
    text = run(PROMPTS[name], 0.8)
    assert text.startswith(PROMPTS[name])
    assert len(text) == len(PROMPTS[name]) + COUNT + 1


@every_file
def test_python_without_keras_writes_the_same_text(exported, name, tmp_path):
    path, model = exported(name)

    def run(prompt, temperature):
        script, arguments = ROOT / "docs/onnx_generate.py", (path, prompt, COUNT, temperature)
        packages = "keras_seq", "keras", "tensorflow", "torch", "jax"
        done = run_without(packages, tmp_path, script, *arguments, PYTHONIOENCODING="utf-8")
        assert done.returncode == 0, done.stderr
        return done.stdout

    check_texts(run, model, name)


@pytest.fixture(scope="session")
def packages_of_node():
    folders = [pathlib.Path(folder) for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder]
    folders = [folder for folder in (ROOT / "node_modules", *folders) if (folder / "onnxruntime-web").is_dir()]
    if not folders:
        pytest.skip("needs npm install onnxruntime-web, in the clone or where NODE_PATH says")
    return folders[0].resolve()


@pytest.fixture
def folder(packages_of_node, tmp_path):
    """A folder with the script, and the packages beside it, where Node and a page look for them."""
    (tmp_path / "node_modules").symlink_to(packages_of_node)
    shutil.copy(ROOT / "docs/onnx_generate.mjs", tmp_path)
    return tmp_path


@every_file
@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_writes_the_same_text(exported, folder, name):
    path, model = exported(name)

    def run(prompt, temperature):
        command = ["node", "onnx_generate.mjs", path, prompt, str(COUNT), str(temperature)]
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        return done.stdout

    check_texts(run, model, name)


@pytest.mark.rare
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_page_writes_the_same_text(exported, folder, monkeypatch):
    path, model = exported("transformer")
    shutil.copy(path, folder / "model.onnx")
    page = re.search(r"^```html\n(.*?)^```$", (ROOT / "docs/exports.md").read_text("utf-8"), re.M | re.DOTALL)[1]
    page, count = re.subn(r"https://cdn\.jsdelivr\.net/npm/(onnxruntime-web)@[\d.]+", r"./node_modules/\1", page)
    assert count == 1
    (folder / "index.html").write_text(page, encoding="utf-8")
    script = (folder / "onnx_generate.mjs").read_text(encoding="utf-8")
    script, count = re.subn(r"^const .*\n// (const .*)$", r"\1", script, flags=re.MULTILINE)
    assert count == 3
    script, count = re.subn(r'"ROMEO:", 200, 0\.8(?=\];)', f'"{PROMPTS["transformer"]}", {COUNT}, 0', script)
    assert count == 1
    (folder / "onnx_generate.mjs").write_text(script, encoding="utf-8")

    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *arguments: None)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        url = f"http://127.0.0.1:{server.server_port}/index.html"
        done = subprocess.run(["chromium", *options, url], capture_output=True, encoding="utf-8", check=True)
        server.shutdown()
    assert expected_text(model, "transformer", PROMPTS["transformer"]) in done.stdout
