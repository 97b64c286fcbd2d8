import errno
import json
import os
import pathlib
import re

import keras
import pytest
import tensorflow as tf

from keras_seq.commands import export
from keras_seq.generation import generate
from keras_seq.tokenizers import WordTokenizer
from keras_seq.training import load_run


@pytest.fixture
def run(smoke, copied):
    """A finished run of one's own."""
    return copied(smoke.folder / "lstm-seed0", "lstm-seed0")


@pytest.mark.slow
def test_a_saved_model_stands_beside_the_model(run, capsys):
    export.main([str(run)])
    written, use = capsys.readouterr().out.splitlines()
    assert written == f"Written: {run / 'saved_model'}"
    exec(use.removeprefix("To use it: "), names := {"tf": tf})
    assert len(names["text"].numpy()) >= 200
    loaded, int64 = tf.saved_model.load(run / "saved_model"), lambda number: tf.constant(number, tf.int64)
    text = loaded.generate("The ", int64(20), 0.8, int64(3)).numpy().decode()
    assert text == generate(*load_run(run), "The ", max_new_tokens=20, temperature=0.8, seed=3)


def test_a_keras_file_takes_text(run, tmp_path, capsys):
    export.main([str(run), "--to", "keras", "--out", str(tmp_path / "a.keras")])
    written, use = capsys.readouterr().out.splitlines()
    assert written == f"Written: {tmp_path / 'a.keras'}"
    assert eval(use.partition("; ")[2], {"tf": tf, "keras": keras}).shape[:2] == (1, 7)
    assert keras.models.load_model(tmp_path / "a.keras")(tf.constant(["The end"])).shape[:2] == (1, 7)


def test_a_page_has_one_or_two_models_and_says_what_they_are_and_what_8_bits_cost(smoke, run, tmp_path, capsys):
    other = smoke.folder / "transformer-seed0"
    export.main([str(run), "--to", "page"])
    cost, written, _ = capsys.readouterr().out.splitlines()
    exact, rounded = (float(re.search(rf"([\d.]+) {words}", cost)[1]) for words in ("in float32", "bits per"))
    assert 0 <= abs(exact - rounded) < 0.01
    assert written == f"Written: {run / 'page.html'}"
    export.main([str(run), str(other), "--to", "page", "--out", str(tmp_path / "both.html"), "--quantization", "none"])
    written, use = capsys.readouterr().out.splitlines()
    assert "open" in use
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    specs = [json.loads(spec) for spec in re.findall(r'class="model">(.*?)</script>', page)]
    assert [spec["title"] for spec in specs] == ["lstm", "transformer"]
    for spec, folder in zip(specs, (run, other), strict=True):
        result = json.loads((folder / "result.json").read_text())
        loss = result["val_bits_per_character_streaming"]
        assert spec["description"].startswith(f"{result['parameters']:,} parameters, trained on ")
        assert f"{loss:.3f} bits per character" in spec["description"]
    assert not any("block" in weight for spec in specs for weight in spec["weights"])


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--to", "paper"], "--to"),
        (["--out", "nowhere/a"], "nowhere"),
        (["--to", "keras", "--out", "{run}/model.keras"], "model.keras"),
        (["--to", "saved_model", "--out", "{run}/checkpoints"], "checkpoints exists already"),
        (["{run}", "--to", "onnx"], "2 folders of runs; expected one with --to onnx"),
        (["{run}", "{run}", "--to", "page"], "3 folders of runs; expected one or two with --to page"),
        (["--to", "page", "--out", "{run}/page.htm"], "page.htm: expected a name that ends in .html"),
        (["--to", "torch", "--quantization", "int8"], "--quantization int8: expected --to onnx, litert or page"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(run, fails, options, names):
    before = sorted(path.name for path in run.iterdir())
    assert names in fails(export.main, run, *(option.format(run=run) for option in options))
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_folder_that_cannot_be_written(run, fails, monkeypatch, tmp_path):
    """Read-only, full: TensorFlow has exceptions of its own for these, which are no OSError."""

    def full(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device\n\t[[node]]")

    def read_only(path, *arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(tf.saved_model, "save", full)
    assert fails(export.main, run) == f"keras-seq export: {run / 'saved_model'}: No space left on device."
    monkeypatch.setattr(pathlib.Path, "mkdir", read_only)
    assert fails(export.main, run) == f"keras-seq export: {run / 'saved_model'}: Read-only file system."
    assert not [*run.glob("*saved_model*")]


def test_what_transformers_does_not_have_names_models_that_it_has(run, fails):
    sentence = fails(export.main, run, "--to", "hugging_face")
    assert "nearest is keras_seq's MambaConfig: train one of GPT2Config, LlamaConfig" in sentence
    assert "keras-seq train TEXT --model llama (or gpt2, mamba, mamba2, qwen3_5)." in sentence


def test_words_cannot_be_exported(run, fails):
    (run / "tokenizer.json").unlink()
    WordTokenizer.from_text("a b c").save(run / "tokenizer.json")
    for name in ("config.json", "result.json"):  # which know what the run was trained with
        (run / name).unlink(missing_ok=True)
    assert "expected a CharacterTokenizer" in fails(export.main, run)
