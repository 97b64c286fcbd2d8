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

from experiments.benchmark import gpu as benchmark_gpu
from experiments.benchmark import gpu_models, gpu_report, gpu_text, gpu_workers
from experiments.benchmark.cases import CASES, SMOKE_CASES, Case
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
        (("--cases", 11), "--cases 11"),
        (("--repeats", 0), "--repeats 0"),
        (("--train", "--cases", 1), "--cases 1 with --train"),
        (("--train", "--steps", 0), "--steps 0"),
        (("--train", "--precision", "float16"), "--precision"),
        (("--resume", "x"), "--resume x"),
        (("--train", "--resume", "nowhere"), "--resume nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, options, named):
    assert named in fails(benchmark_gpu.main, *options, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_without_a_gpu_it_says_so(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_gpu.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(gpu_workers, "device", lambda cpu, small: {"platform": "cpu", "kind": "cpu"})
    for options in ((), ("--train",)):
        sentence = fails(benchmark_gpu.main, *options, "--log-dir", tmp_path)
        assert all(word in sentence for word in ("no GPU", "--smoke", "--cpu"))
    assert not [*tmp_path.iterdir()]


def test_without_jax_it_says_so(fails, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_gpu.importlib.util, "find_spec", lambda name: None)
    assert "JAX is not installed" in fails(benchmark_gpu.main, "--smoke", "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


def test_the_selected_cases():
    config = benchmark_gpu.GPUBenchmarkConfig
    assert config().selected_cases == CASES
    assert config(cases=(10, 2)).selected_cases == (CASES[9], CASES[1])
    assert config(train=True).selected_cases == ()
    assert config(smoke=True, train=True).selected_cases == SMOKE_CASES


def test_a_training_of_another_version_is_refused(fails, tmp_path):
    (tmp_path / "config.json").write_text('{"settings": {}, "sizes": {}}', encoding="utf-8")
    assert "reads schema 2" in fails(benchmark_gpu.main, "--train", "--resume", tmp_path)


def test_the_text_is_split_and_encoded_as_by_keras_seq():
    corpus = load_corpus("pydoc")
    assert gpu_text.read_text("pydoc") == corpus.text
    data = gpu_text.encode_splits(corpus.text, 256)
    tokenizer = CharacterTokenizer.from_text(corpus.text)
    characters = [chr(code) for code in data["vocabulary"]]
    assert characters == sorted(set(corpus.text))
    assert len(characters) == tokenizer.vocabulary_size
    for name, part in zip(("train", "validation"), corpus.split(), strict=True):
        assert "".join(characters[n] for n in data[name]) == part


def test_a_text_that_cannot_be_read_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("KERAS_SEQ_DATA", raising=False)
    with pytest.raises(ValueError, match="set KERAS_SEQ_DATA"):
        gpu_text.read_text("shakespeare")
    monkeypatch.setenv("KERAS_SEQ_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="is not a file"):
        gpu_text.read_text("shakespeare")
    (tmp_path / "shakespeare.txt").write_text("To be", encoding="utf-8")
    with pytest.raises(ValueError, match="sha256"):
        gpu_text.read_text("shakespeare")
    (tmp_path / "latin").write_bytes(b"\xe9t\xe9")
    with pytest.raises(ValueError, match="UTF-8"):
        gpu_text.read_text(str(tmp_path / "latin"))
    assert gpu_text.SHAKESPEARE_SHA256 == corpus.SHAKESPEARE_SHA256


@pytest.mark.parametrize("context_length", [9, 10])
def test_a_text_too_short_for_a_window(context_length):
    if context_length == 9:
        assert len(gpu_text.encode_splits("0123456789" * 10, context_length)["validation"]) == 10
    else:
        with pytest.raises(ValueError, match="at least 11"):
            gpu_text.encode_splits("0123456789" * 10, context_length)


def size(sizes, vocabulary_size):
    """The parameters of nanoGPT without biases and without its positions."""
    width = sizes.embedding_dim
    return vocabulary_size * width + sizes.num_layers * (12 * width**2 + 2 * width) + width


@pytest.fixture(scope="module")
def small():
    sizes = gpu_models.NanoGPTConfig(num_layers=2, num_heads=2, embedding_dim=8, context_length=6, batch_size=2)
    return sizes, gpu_models.build_nano_gpt(5, sizes, "float32")


def test_the_small_transformer_is_the_one_of_nano_gpt(small):
    sizes, model = small
    assert model.count_params() == size(sizes, 5) + 6 * 8
    assert not [v.path for v in model.trainable_variables if "bias" in v.path or "beta" in v.path]
    assert f"{size(gpu_models.NanoGPTConfig(), 65) / 1e6:.2f}" == "10.65"


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


def test_a_report_has_the_errors_and_the_lowest_losses():
    measurements = {"keras_seq": {"tokens_per_second": 3e6, "peak_megabytes": 12.0}}
    result = {"name": "a case", "measurements": measurements, "errors": {"keras": "ended with exit status 1"}}
    result |= {"speedup_vs_torch": None, "speedup_vs_keras": None, "matmul_utilization": 0.25}
    lines = [
        {"step": step, "train_loss": train, "val_loss": val, "val_loss_random_windows": random, "train_seconds": 2.0}
        for step, train, val, random in ((0, None, 4.0, 4.25), (5, 3.0, 2.5, 1.25), (9, 2.0, 1.5, 1.75))
    ]
    training = {
        **{"parameters": 10, "parameters_without_positions": 8, "validations": lines},
        **{
            "best": {"val_loss": lines[2], "val_loss_random_windows": lines[1]},
            "train_tokens": 8,
            "train_seconds": 2.0,
        },
        **{"sizes": {"batch_size": 1, "context_length": 7, "random_window_batches": 3}},
        **{"config": {"corpus": "pydoc", "steps": 9, "precision": "float32", "seed": 0}},
    }
    device = {"kind": "a chip", "platform": "gpu", "versions": {"jax": "1"}, "matmul_flops": {"float32": 2e12}}
    report = gpu_report.report_text({"device": device, "cases": [result], "training": training})
    assert "Failed: a case, keras: ended with exit status 1" in report
    assert " 25.0 |" in report
    assert "val_loss@7 1.5000 at step 9; on 3 batches of random windows 1.2500 at step 5" in report
    assert "(4 tokens/s)" in report
    assert gpu_report.line(result) == "a case: keras_seq 3,000,000 tokens/s; keras.layers failed"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_both_sides_have_the_same_parameters(kind):
    case = Case("small", kind, 2, 6, 8, units=5, num_heads=2, num_layers=2)
    assert gpu_models.keras_seq_model(case).count_params() == gpu_models.keras_reference_model(case).count_params()


@needs_jax
@pytest.mark.slow
def test_a_tiny_run_without_tensorflow_leaves_its_report(tmp_path):
    process = without_tensorflow(tmp_path, "-m", "experiments.benchmark.gpu", "--smoke", "--log-dir", tmp_path / "logs")
    assert process.returncode == 0, process.stderr
    (folder,) = (tmp_path / "logs" / "benchmark_gpu").iterdir()
    results = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert [result["name"] for result in results["cases"]] == [case.name for case in SMOKE_CASES]
    assert all(result["speedup_vs_keras"] > 0 and not result["errors"] for result in results["cases"])
    lines = gpu_report.read_metrics(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert lines == results["training"]["validations"]
    assert results["training"]["best"]["val_loss"]["val_loss"] < lines[0]["val_loss"]
    assert gpu_report.report_text(results) in (folder / "benchmark_gpu.md").read_text(encoding="utf-8")
    assert gpu_report.report_text(results) in process.stdout


STEPS = """
import sys
sys.orig_argv.append("experiments.gpu_test")
import jax, jax.numpy as jnp, keras, numpy as np
from experiments.benchmark import gpu_jax
from experiments.benchmark import gpu_models
sizes = gpu_models.NanoGPTConfig(1, 2, 8, 6, 3, 0.0)
model = gpu_models.build_nano_gpt(7, sizes, "float32")
optimizer = gpu_models.case_optimizer()
optimizer.build(model.trainable_variables)
ids = jnp.asarray(np.random.default_rng(0).integers(7, size=50))
windows = [gpu_jax.random_windows(ids, 3, 6, jax.random.key(n)) for n in range(4)]
for x, y in windows:
    assert x.shape == y.shape == (3, 6) and (x[:, 1:] == y[:, :-1]).all()
many = gpu_jax.random_windows(jnp.arange(20), 500, 6, jax.random.key(0))[1]
assert many.min() == 1 and many.max() == 19  # every window that fits, and no other
step_loop = gpu_jax.compile_step_loop(model, optimizer, lambda n: tuple(jnp.stack(p)[n] for p in zip(*windows)))
state, first = step_loop(gpu_jax.training_state(model, optimizer), 0, 1)
state, rest = step_loop(state, 1, 3)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(gpu_models.case_optimizer(), loss, auto_scale_loss=False)
losses = []
for x, y in windows:
    model.reset_metrics()
    losses.append(float(model.train_on_batch(np.asarray(x), np.asarray(y))))
np.testing.assert_allclose([first, rest], [losses[0], sum(losses[1:])], rtol=1e-5)
for array, variable in zip(state[0], model.trainable_variables):
    np.testing.assert_allclose(array, variable, rtol=1e-3, atol=1e-5)
"""


@needs_jax
@pytest.mark.slow
def test_the_loop_trains_as_keras_does(tmp_path):
    process = without_tensorflow(tmp_path, "-c", STEPS)
    assert process.returncode == 0, process.stderr


TRAINS = """
import json, pathlib, sys
sys.orig_argv.append("experiments.gpu_test")
from experiments.benchmark import gpu as benchmark_gpu
from experiments.benchmark import gpu_report
from experiments.benchmark import gpu_train
import jax.numpy as jnp, numpy as np
config = benchmark_gpu.GPUBenchmarkConfig(train=True, smoke=True, corpus="pydoc", steps=20, precision="float32")
straight, stopped = (pathlib.Path(sys.argv[1], name) for name in ("straight", "stopped"))
for folder in (straight, stopped):
    benchmark_gpu.prepare_training(config, folder)
whole = gpu_train.train(straight)
save_checkpoint = gpu_train.save_checkpoint

def save_and_stop(path, state, step):
    save_checkpoint(path, state, step)
    if step == 10:
        raise KeyboardInterrupt

gpu_train.save_checkpoint = save_and_stop
try:
    gpu_train.train(stopped)
    sys.exit("it did not stop")
except KeyboardInterrupt:
    gpu_train.save_checkpoint = save_checkpoint
assert [line["step"] for line in gpu_report.read_metrics(stopped / "metrics.jsonl")] == [0, 10]
again = gpu_train.train(stopped)
for name in ("train_loss", "val_loss", "val_loss_random_windows"):
    assert [line[name] for line in whole["validations"]] == [line[name] for line in again["validations"]], name
with np.load(straight / "checkpoint.npz") as one, np.load(stopped / "checkpoint.npz") as other:
    assert all((one[name] == other[name]).all() for name in one.files)


class Uniform:
    def stateless_call(self, trainable, rest, x, training):
        assert not training
        return jnp.broadcast_to(trainable[0], (*x.shape, 4)), rest


sizes = gpu_train.gpu_models.NanoGPTConfig(context_length=3, batch_size=2, random_window_batches=2)
ids = np.array([0, 0, 1, 0, 2, 0, 0, 3, 0, 0, 1])  # three whole windows, targets 0 1 0 2 0 0 3 0 0
logits = np.array([1.0, 0.5, 0.0, -1.0], "float32")
losses = np.log(np.exp(logits).sum()) - logits
scores = gpu_train.Validator(Uniform(), ids, sizes, 0)(([logits], [], []), 0)
np.testing.assert_allclose(scores["val_loss"], losses[[0, 1, 0, 2, 0, 0, 3, 0, 0]].mean(), rtol=1e-6)
scores = gpu_train.Validator(Uniform(), np.full(11, 2), sizes, 0)(([logits], [], []), 0)
np.testing.assert_allclose([scores["val_loss"], scores["val_loss_random_windows"]], losses[2], rtol=1e-6)
"""


@needs_jax
@pytest.mark.slow
def test_a_resumed_training_is_the_same_and_its_losses_are_those_of_a_loop(tmp_path):
    process = without_tensorflow(tmp_path, "-c", TRAINS, tmp_path)
    assert process.returncode == 0, process.stderr
