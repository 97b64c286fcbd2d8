import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from experiments import gpu, gpu_models, gpu_report, gpu_text, gpu_turns
from experiments.benchmark_rows import ROWS, TINY, Row
from keras_seq.data import corpus, load_corpus
from keras_seq.tokenizers import CharacterTokenizer

ROOT = pathlib.Path(__file__).parents[2]
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
REFUSE = """
import importlib.machinery, sys
class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "tensorflow" else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Without
"""


def without_tensorflow(tmp_path, *arguments):
    """Runs `python ...` on JAX where TensorFlow cannot be imported, in the processes it starts neither."""
    (tmp_path / "sitecustomize.py").write_text(REFUSE, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--rows", 11), "--rows 11"),
        (("--runs", 0), "--runs 0"),
        (("--train", "--rows", 1), "--rows 1 with --train"),
        (("--train", "--steps", 0), "--steps 0"),
        (("--train", "--precision", "float16"), "--precision"),
        (("--resume", "x"), "--resume x"),
        (("--train", "--resume", "nowhere"), "--resume nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, options, named):
    assert named in fails(gpu.main, *options, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_without_a_gpu_it_says_so(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(gpu_turns, "device", lambda cpu, small: {"platform": "cpu", "kind": "cpu"})
    for options in ((), ("--train",)):
        sentence = fails(gpu.main, *options, "--log-dir", tmp_path)
        assert all(word in sentence for word in ("no GPU", "--smoke", "--cpu"))
    assert not [*tmp_path.iterdir()]


def test_without_jax_it_says_so(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert "JAX is not installed" in fails(gpu.main, "--smoke", "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_the_chosen_rows():
    assert gpu.GPU().chosen == ROWS
    assert gpu.GPU(rows=(10, 2)).chosen == (ROWS[9], ROWS[1])
    assert gpu.GPU(train=True).chosen == ()
    assert gpu.GPU(smoke=True, train=True).chosen == TINY


def test_the_text_is_what_keras_seq_reads_and_cuts():
    corpus = load_corpus("pydoc")
    assert gpu_text.read("pydoc") == corpus.text
    data = gpu_text.encoded(corpus.text, 256)
    vocabulary = CharacterTokenizer.from_text(corpus.text)
    characters = [chr(code) for code in data["vocabulary"]]
    assert characters == sorted(set(corpus.text))
    assert len(characters) == vocabulary.vocabulary_size
    for name, part in zip(("train", "validation"), corpus.split(), strict=True):
        assert "".join(characters[n] for n in data[name]) == part


def test_a_text_that_cannot_be_had_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_SEQ_DATA", raising=False)
    with pytest.raises(ValueError, match="set KERAS_SEQ_DATA"):
        gpu_text.read("shakespeare")
    monkeypatch.setenv("KERAS_SEQ_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="no file"):
        gpu_text.read("shakespeare")
    (tmp_path / "shakespeare.txt").write_text("To be", encoding="utf-8")
    with pytest.raises(ValueError, match="sha256"):
        gpu_text.read("shakespeare")
    (tmp_path / "latin").write_bytes(b"\xe9t\xe9")
    with pytest.raises(ValueError, match="UTF-8"):
        gpu_text.read(str(tmp_path / "latin"))
    assert gpu_text.SHAKESPEARE_SHA256 == corpus.SHAKESPEARE_SHA256


@pytest.mark.parametrize("context", [9, 10])
def test_a_text_too_short_for_a_window(context):
    if context == 9:
        assert len(gpu_text.encoded("0123456789" * 10, context)["validation"]) == 10
    else:
        with pytest.raises(ValueError, match="at least 11"):
            gpu_text.encoded("0123456789" * 10, context)


def size(sizes, vocabulary_size):
    """The parameters of nanoGPT without biases and without its positions."""
    width = sizes.embedding_dim
    return vocabulary_size * width + sizes.num_layers * (12 * width**2 + 2 * width) + width


@pytest.fixture(scope="module")
def small():
    sizes = gpu_models.Sizes(num_layers=2, num_heads=2, embedding_dim=8, context=6, batch_size=2)
    return sizes, gpu_models.nano_gpt(5, sizes, "float32")


def test_the_small_transformer_is_the_one_of_nano_gpt(small):
    sizes, model = small
    assert model.count_params() == size(sizes, 5) + 6 * 8
    assert not [v.path for v in model.trainable_variables if "bias" in v.path or "beta" in v.path]
    assert f"{size(gpu_models.Sizes(), 65) / 1e6:.2f}" == "10.65"


def test_its_optimizer_is_the_one_of_nano_gpt(small):
    sizes, model = small
    optimizer = gpu_models.nano_gpt_optimizer(model, sizes, 5000)
    rate = keras.ops.convert_to_numpy
    for step in (0, 1, 50, 99, 100, 101, 2500, 4999, 5000, 6000):
        if step < 100:
            expected = 1e-3 * (step + 1) / 101
        else:
            cosine = math.cos(math.pi * min(1, (step - 100) / 4900))
            expected = 1e-4 + 0.5 * (1 + cosine) * 9e-4
        np.testing.assert_allclose(rate(optimizer._learning_rate(step)), expected, rtol=1e-4)
    before = [v.numpy() for v in model.trainable_variables]
    optimizer.apply([keras.ops.zeros_like(v) for v in model.trainable_variables])
    for old, variable in zip(before, model.trainable_variables, strict=True):
        decayed = old * (1 - 0.1 * 1e-3 / 101) if len(variable.shape) > 1 else old
        np.testing.assert_allclose(variable.numpy(), decayed, rtol=1e-6, atol=1e-9)


def test_a_report_tells_what_failed_and_the_best_of_each_way():
    summaries = {"ours": {"tokens_per_second": 3e6, "peak_megabytes": 12.0}}
    row = {"name": "a row", "measured": summaries, "errors": {"keras": "ended with status 1"}}
    row |= {"speedup_vs_torch": None, "speedup_vs_keras": None, "matmul_utilization": 0.25}
    lines = [
        {"step": step, "train_loss": nats, "val_loss": cold, "val_loss_random_windows": crops, "train_seconds": 2.0}
        for step, nats, cold, crops in ((0, None, 4.0, 4.25), (5, 3.0, 2.5, 1.25), (9, 2.0, 1.5, 1.75))
    ]
    training = {
        **{"parameters": 10, "parameters_without_positions": 8, "evaluations": lines},
        **{
            "best": {"val_loss": lines[2], "val_loss_random_windows": lines[1]},
            "train_tokens": 8,
            "train_seconds": 2.0,
        },
        **{"sizes": {"batch_size": 1, "context": 7, "crop_batches": 3}},
        **{"settings": {"corpus": "pydoc", "steps": 9, "precision": "float32", "seed": 0}},
    }
    device = {"kind": "a chip", "platform": "gpu", "versions": {"jax": "1"}, "matmul_flops": {"float32": 2e12}}
    told = gpu_report.told({"device": device, "rows": [row], "training": training})
    assert "Failed: a row, keras: ended with status 1" in told
    assert "25.0%" in told
    assert "cold@7 1.5000 at step 9; by 3 batches of random crops 1.2500 at step 5" in told
    assert "(4 tokens/s)" in told
    assert gpu_report.line(row) == "a row: ours 3,000,000 tokens/s; keras.layers failed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_both_sides_have_the_same_parameters(kind):
    row = Row("small", kind, 2, 6, 8, units=5, num_heads=2, num_layers=2)
    assert gpu_models.ours(row).count_params() == gpu_models.keras_as_it_comes(row).count_params()


@needs_jax
@pytest.mark.slow
def test_a_tiny_run_without_tensorflow_leaves_its_report(tmp_path):
    done = without_tensorflow(tmp_path, "-m", "experiments.gpu", "--smoke", "--log-dir", tmp_path / "logs")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "logs" / "gpu").iterdir()
    found = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert [entry["name"] for entry in found["rows"]] == [row.name for row in TINY]
    assert all(entry["speedup_vs_keras"] > 0 and not entry["errors"] for entry in found["rows"])
    lines = gpu_report.lines_of(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert lines == found["training"]["evaluations"]
    assert found["training"]["best"]["val_loss"]["val_loss"] < lines[0]["val_loss"]
    assert gpu_report.told(found) in (folder / "gpu.md").read_text(encoding="utf-8")
    assert gpu_report.told(found) in done.stdout


STEPS = """
import sys
sys.orig_argv.append("experiments.gpu_test")
import jax, jax.numpy as jnp, keras, numpy as np
from experiments import gpu_jax, gpu_models
sizes = gpu_models.Sizes(1, 2, 8, 6, 3, 0.0)
model = gpu_models.nano_gpt(7, sizes, "float32")
optimizer = gpu_models.row_optimizer()
optimizer.build(model.trainable_variables)
ids = jnp.asarray(np.random.default_rng(0).integers(7, size=50))
crops = [gpu_jax.random_crops(ids, 3, 6, jax.random.key(n)) for n in range(4)]
for x, y in crops:
    assert x.shape == y.shape == (3, 6) and (x[:, 1:] == y[:, :-1]).all()
many = gpu_jax.random_crops(jnp.arange(20), 500, 6, jax.random.key(0))[1]
assert many.min() == 1 and many.max() == 19  # every crop that fits, and none that does not
loop = gpu_jax.steps_in_a_loop(model, optimizer, lambda n: tuple(jnp.stack(p)[n] for p in zip(*crops)))
state, first = loop(gpu_jax.state_of(model, optimizer), 0, 1)
state, rest = loop(state, 1, 3)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(gpu_models.row_optimizer(), loss, auto_scale_loss=False)
losses = []
for x, y in crops:
    model.reset_metrics()
    losses.append(float(model.train_on_batch(np.asarray(x), np.asarray(y))))
np.testing.assert_allclose([first, rest], [losses[0], sum(losses[1:])], rtol=1e-5)
for ours, theirs in zip(state[0], model.trainable_variables):
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
"""


@needs_jax
@pytest.mark.slow
def test_the_loop_trains_as_keras_does(tmp_path):
    done = without_tensorflow(tmp_path, "-c", STEPS)
    assert done.returncode == 0, done.stderr


TRAINS = """
import json, pathlib, sys
sys.orig_argv.append("experiments.gpu_test")
from experiments import gpu, gpu_report, gpu_train
import jax.numpy as jnp, numpy as np
settings = gpu.GPU(train=True, smoke=True, corpus="pydoc", steps=20, precision="float32")
straight, stopped = (pathlib.Path(sys.argv[1], name) for name in ("straight", "stopped"))
for folder in (straight, stopped):
    gpu.prepared(settings, folder)
whole = gpu_train.train(straight)
save = gpu_train.save

def save_and_stop(path, state, step):
    save(path, state, step)
    if step == 10:
        raise KeyboardInterrupt

gpu_train.save = save_and_stop
try:
    gpu_train.train(stopped)
    sys.exit("it did not stop")
except KeyboardInterrupt:
    gpu_train.save = save
assert [line["step"] for line in gpu_report.lines_of(stopped / "metrics.jsonl")] == [0, 10]
again = gpu_train.train(stopped)
for name in ("training_nats", "cold_nats", "crops_nats"):
    assert [line[name] for line in whole["evaluations"]] == [line[name] for line in again["evaluations"]], name
with np.load(straight / "checkpoint.npz") as one, np.load(stopped / "checkpoint.npz") as other:
    assert all((one[name] == other[name]).all() for name in one.files)


class Uniform:
    def stateless_call(self, trainable, rest, x, training):
        assert not training
        return jnp.broadcast_to(trainable[0], (*x.shape, 4)), rest


sizes = gpu_train.gpu_models.Sizes(context=3, batch_size=2, crop_batches=2)
ids = np.array([0, 0, 1, 0, 2, 0, 0, 3, 0, 0, 1])  # three whole windows, targets 0 1 0 2 0 0 3 0 0
logits = np.array([1.0, 0.5, 0.0, -1.0], "float32")
nats = np.log(np.exp(logits).sum()) - logits
found = gpu_train.Validation(Uniform(), ids, sizes, 0)(([logits], [], []), 0)
np.testing.assert_allclose(found["cold_nats"], nats[[0, 1, 0, 2, 0, 0, 3, 0, 0]].mean(), rtol=1e-6)
found = gpu_train.Validation(Uniform(), np.full(11, 2), sizes, 0)(([logits], [], []), 0)
np.testing.assert_allclose([found["cold_nats"], found["crops_nats"]], nats[2], rtol=1e-6)
"""


@needs_jax
@pytest.mark.slow
def test_a_training_goes_on_where_it_stopped_and_scores_as_a_loop_would(tmp_path):
    done = without_tensorflow(tmp_path, "-c", TRAINS, tmp_path)
    assert done.returncode == 0, done.stderr
