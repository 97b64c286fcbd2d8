import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import as_run, keras_runs, models, report, time_report, time_to_loss, turns, worker
from experiments.benchmark.case import CASES, SMOKE_CASES, Case
from experiments.benchmark.settings import BenchmarkConfig
from experiments.common.options import command_line
from experiments.compare.settings import CompareConfig
from keras_seq.models import TransformerConfig
from tests.experiments.conftest import ROOT

SMALL = {"batch_size": 2, "sequence_length": 6, "embedding_dim": 8, "units": 5, "num_heads": 2, "num_layers": 2}
REFUSE = """
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
def without(name, path=None, target=None):
    return None if name.split(".")[0] == "tensorflow" else find_spec(name, path, target)
PathFinder.find_spec = staticmethod(without)
"""


def needs(library):
    missing = importlib.util.find_spec(library) is None
    return pytest.param(library, marks=[pytest.mark.slow, pytest.mark.skipif(missing, reason=f"needs {library}")])


def without_tensorflow(tmp_path, backend, *arguments):
    """Run `python ...` where TensorFlow cannot be imported, in the processes it starts neither."""
    (tmp_path / "sitecustomize.py").write_text(REFUSE, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_the_speedup_is_the_median_of_the_ratios_of_the_rounds():
    measurements = {"keras_seq": {"repeats": [2.0, 8.0, 3.0]}, "keras": {"repeats": [1.0, 2.0, 3.0]}}
    assert turns.speedup(measurements, "keras") == 2.0  # of 2, 4 and 1; the ratio of the medians is 1.5
    assert turns.speedup(measurements, "torch") is None
    assert turns.speedup({**measurements, "before": {"repeats": []}}, "before") is None  # the loss was not reached


def test_implementations_take_turns_and_one_that_fails_does_not_end_the_others(monkeypatch):
    log = []

    class Worker:
        def __init__(self, config, request):
            self.name, self.calls = request["implementation"], 0

        def go(self):
            log.append(self.name)
            self.calls += 1
            if (self.name, self.calls) == ("keras", 3):
                raise turns.WorkerError("out of memory")
            return {"tokens_per_second": float(self.calls), "peak_megabytes": 1.0, "parameters": 7}

        def close(self):
            log.append(f"end {self.name}")

    monkeypatch.setattr(turns, "Worker", Worker)
    config = BenchmarkConfig(repeats=3)
    measurements, errors = turns.take_turns(config, CASES["step"][0], ["keras_seq", "keras"], "cpu")
    assert log == [*3 * ["keras_seq", "keras"], *2 * ["keras_seq"], "end keras", "end keras_seq"]
    assert errors == {"keras": "out of memory"}
    assert measurements["keras_seq"]["repeats"] == [3.0, 4.0, 5.0]
    assert measurements["keras_seq"]["parameters"] == 7


def test_a_run_takes_the_seconds_in_whole_executions(monkeypatch):
    monkeypatch.setattr(worker, "seconds_of", lambda run_steps, num_steps: num_steps / 1010)
    assert worker.calibrate(lambda num_steps: None, 25, 2.0) == (25 / 1010, 2025)
    assert worker.calibrate(lambda num_steps: None, 25, 0.001) == (25 / 1010, 25)


def test_every_case_has_a_name_of_its_own_and_steps_have_targets():
    cases = [case for kind in CASES.values() for case in kind]
    assert len({(case.kind, case.name) for case in cases}) == len(cases)
    assert all(dict(case.targets).keys() == {"torch", "keras"} for case in CASES["step"])
    assert all(dict(case.targets).keys() < {*case.implementations} for kind in CASES.values() for case in kind)
    assert {case.kind for case in SMOKE_CASES} == CASES.keys() - {"time_to_loss"}  # the same process as as_run


def parsed(case):
    return command_line(CompareConfig, "experiments.compare", "", case.compare_arguments)


def test_what_is_measured_as_run_is_the_default_of_compare():
    defaults = CompareConfig()
    cases = [case for case in CASES["as_run"] if not case.options]
    assert {(case.model, case.optimizer) for case in cases} == set(
        itertools.product(defaults.models, ("muon", "adamw"))
    )
    for case in cases:
        config, model = parsed(case), defaults.model(case.model)
        optimizer = "normuon" if case.optimizer == "muon" else case.optimizer
        train = dataclasses.replace(defaults.train, optimizer=optimizer, precision=case.precision)
        assert config == dataclasses.replace(defaults, models=(case.model,), train=train)
        assert (case.batch_size, case.sequence_length) == (defaults.batch_size, defaults.sequence_length)
        sizes = {key: value for key, value in dataclasses.asdict(model).items() if key in dataclasses.asdict(case)}
        assert sizes == {key: getattr(case, key) for key in sizes}
    for case in CASES["time_to_loss"]:
        assert parsed(case) == dataclasses.replace(defaults, models=(case.model,), corpus="shakespeare")


def test_nano_gpt_on_a_cpu_has_the_parameters_of_its_model():
    (case,) = [case for case in CASES["as_run"] if case.model == "gpt2"]
    config = parsed(case)
    width, model = 128, config.model("gpt2")
    assert model.count_params(65) == 65 * width + 64 * width + 4 * (12 * width**2 + 2 * width) + width
    train = config.train
    assert (train.optimizer, train.learning_rate, train.final_lr_fraction, train.log_every) == ("adamw", 1e-3, 0.1, 1)
    assert (train.use_ema, model.activation) == (False, "gelu")
    assert (train.warmup_steps, train.weight_decay, train.beta_2, train.global_clipnorm) == (100, 0.1, 0.99, 1.0)


def test_a_case_of_sizes_differs_from_the_others_of_its_model_in_one_size():
    for model in ("lstm", "transformer", "attention"):
        values = [dataclasses.astuple(case) for case in CASES["sizes"] if case.model == model]
        usual = [max(set(column), key=column.count) for column in zip(*values, strict=True)]
        assert all(sum(a != b for a, b in zip(usual, case, strict=True)) <= 1 for case in values)


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_all_sides_have_the_same_parameters(model):
    case = Case("step", model, **SMALL)
    ids = np.zeros((2, 6), "int32")
    sides = [models.keras_seq_model(case), models.keras_model(case)]
    assert [side(ids).shape for side in sides] == 2 * [(2, 6, 65)]
    counts = {side.count_params() for side in sides}
    if importlib.util.find_spec("torch") is not None:
        from experiments.benchmark import torch_runs

        second_bias = 4 * case.units * case.num_layers if model == "lstm" else 0  # of torch's LSTM
        counts.add(torch_runs.training_steps(case)[1]["parameters"] - second_bias)
    assert len(counts) == 1


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_the_transformer_with_the_same_layers_is_that_of_compare(randomize):
    import torch

    from experiments.benchmark.torch_models import Transformer

    case = Case("as_run", "transformer", 2, 6, embedding_dim=8, num_heads=2, num_layers=2)
    ours = TransformerConfig(8, num_layers=2, num_heads=2, feed_forward_dim=32, context_length=6).build_model(65)
    randomize(ours)
    arrays = {weight.path.partition("/")[2].replace("/kernel", ""): weight.numpy().T for weight in ours.weights}
    state = {"embedding.weight": arrays["embedding/embeddings"].T, "head.weight": arrays["head"]}
    state["norm.weight"] = arrays["normalization/scale"]
    for n in range(2):
        block = {name.removeprefix(f"block_{n}/"): array for name, array in arrays.items()}
        *inputs, projection = (block[f"self_attention/{name}"] for name in ("query", "key", "value", "output"))
        state |= {
            f"blocks.{n}.attention.weight": np.concatenate(inputs),
            f"blocks.{n}.projection.weight": projection,
            f"blocks.{n}.query_norm.weight": block["self_attention/query_normalization/scale"],
            f"blocks.{n}.key_norm.weight": block["self_attention/key_normalization/scale"],
            f"blocks.{n}.first.weight": block["self_attention_normalization/scale"],
            f"blocks.{n}.second.weight": block["feed_forward_normalization/scale"],
            f"blocks.{n}.feed_forward.0.weight": block["feed_forward/hidden"],
            f"blocks.{n}.feed_forward.2.weight": block["feed_forward/output"],
        }
    theirs = Transformer(case)
    theirs.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    ids = np.random.default_rng(0).integers(65, size=(2, 6))
    np.testing.assert_allclose(theirs(torch.from_numpy(ids)).detach(), ours(ids), atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_the_muon_of_a_block_is_that_of_torch_on_this_block_alone():
    import torch

    from experiments.benchmark.torch_training import MuonPerBlock

    torch.manual_seed(0)
    whole = torch.nn.Parameter(torch.randn(4 * 6, 5))
    gates = [torch.nn.Parameter(gate.detach().clone()) for gate in whole.chunk(4)]
    optimizers = [MuonPerBlock([whole], lr=0.1, blocks=4), torch.optim.Muon(gates, lr=0.1, weight_decay=0.0)]
    for _ in range(3):
        whole.grad = torch.randn_like(whole)
        for gate, gradient in zip(gates, whole.grad.chunk(4), strict=True):
            gate.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    np.testing.assert_allclose(whole.detach(), torch.cat(gates).detach(), atol=0.02)  # the iterations are in bfloat16


METRICS = """
import json, pathlib, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--log-dir") + 1], "compare", "now", "lstm-seed0")
run.mkdir(parents=True)
with open(run / "metrics.jsonl", "w") as file:
    for step in range(1, {steps} + 1):
        time.sleep(0.02)
        lines = [dict(split="train", seconds=0.02 * step), dict(split="validation", val_loss=4 - 0.5 * step)]
        for line in lines:
            file.write(json.dumps(dict(step=step, tokens=100 * step, **line)) + chr(10))
            file.flush()
seconds = dict(validation=0.01, diagnostics=0, final_validation=0.02)
(run / "result.json").write_text(json.dumps(dict(other_seconds=seconds)))
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose `experiments.compare` writes so many steps and their losses, or says why it does not."""

    def checkout(program):
        for package in ("keras_seq", "experiments"):  # not of a namespace, which an installed package would hide
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").touch()
        (tmp_path / "experiments/compare.py").write_text(program, encoding="utf-8")
        return tmp_path

    return checkout


def test_the_time_to_a_loss_is_read_while_the_run_writes_it(checkout):
    path = checkout(METRICS.format(steps=6))
    config = BenchmarkConfig(kinds=("time_to_loss",), against=str(path), repeats=2)
    case = dataclasses.replace(CASES["time_to_loss"][0], loss=1.75)
    measurements, errors = time_to_loss.measure_times(config, case, ["before"])
    assert errors == {}
    found = measurements["before"]
    assert found["steps_to_loss"] == pytest.approx(0.09)  # half-way between steps 4 and 5
    assert 0.09 < found["whole_to_loss"] < 60
    assert (found["val_loss"], found["tokens_per_second"]) == (1.0, pytest.approx(5000))
    parts = found["seconds_by_part"]
    assert parts["steps"] == pytest.approx(0.12)
    assert parts["validation"] == 0.01
    not_reached = time_to_loss.measure_times(config, dataclasses.replace(case, loss=0.5), ["before"])[0]["before"]
    assert (not_reached["steps_to_loss"], not_reached["repeats"], not_reached["val_loss"]) == (None, [], 1.0)
    result = {"name": case.name, "case": dataclasses.asdict(case), "measurements": measurements, "errors": {}}
    tables = time_report.tables([{**result, "speedup_vs_before": None}])
    assert "1.0000" in tables[0]
    assert f"{0.03 / parts['steps']:.1%}" in tables[1]


def test_a_training_makes_steps_only_in_its_turns(checkout):
    config = BenchmarkConfig(kinds=("as_run",), against=str(checkout(METRICS.format(steps=10**4))), seconds=0.2)
    with contextlib.closing(as_run.PausedTraining(config, CASES["as_run"][0], "before")) as training:
        assert training.go() == {}
        assert training.go()["tokens_per_step"] == 12 * 64
        time.sleep(0.1)  # a line may have been on its way
        training.training.new_lines()
        time.sleep(0.3)
        assert training.training.new_lines() == []
        assert 1000 < training.go()["tokens_per_second"] < 6000  # 100 tokens in 0.02 s or a little more
        folder = pathlib.Path(training.training.folder.name)
    assert not folder.exists()


def test_a_training_that_cannot_run_is_reported_with_its_sentence(checkout):
    path = checkout("import sys\nprint('warning')\nsys.exit('experiments.compare: no corpus.')")
    config = BenchmarkConfig(kinds=("time_to_loss",), against=str(path), repeats=2)
    measured = time_to_loss.measure_times(config, CASES["time_to_loss"][0], ["before"])
    assert measured == ({}, {"before": "experiments.compare: no corpus. (exit status 1)"})


ATTENTION = Case("step", "attention", batch_size=2, sequence_length=7, embedding_dim=8, num_heads=2)


def test_attention_is_the_same_function_on_both_sides():
    gradients, reference = (keras_runs.prepare(ATTENTION, name)[0](1) for name in ("keras_seq", "keras"))
    np.testing.assert_allclose(gradients, reference, rtol=1e-4, atol=1e-6)


OTHER_BACKEND = """
import sys, keras, numpy as np
from experiments.benchmark import keras_runs
from experiments.benchmark.case import Case
case = Case("step", "attention", batch_size=2, sequence_length=7, embedding_dim=8, num_heads=2)
def numpy(gradients): return np.stack([keras.ops.convert_to_numpy(g) for g in gradients])
gradients = [numpy(keras_runs.prepare(case, name)[0](1)) for name in ("keras_seq", "keras")]
if keras.backend.backend() == "torch":
    from experiments.benchmark import torch_runs
    gradients.append(numpy(torch_runs.prepare(case, "torch")[0](1)).swapaxes(2, 3))  # from [B, H, T, K]
np.save(sys.argv[1], gradients)
"""


@pytest.mark.parametrize("backend", [needs("jax"), needs("torch")])
def test_attention_is_the_same_function_on_every_backend_without_tensorflow(tmp_path, backend):
    process = without_tensorflow(tmp_path, backend, "-c", OTHER_BACKEND, tmp_path / "gradients.npy")
    assert process.returncode == 0, process.stderr
    expected = keras_runs.prepare(ATTENTION, "keras_seq")[0](1)
    for gradients in np.load(tmp_path / "gradients.npy"):
        np.testing.assert_allclose(gradients, expected, rtol=1e-3, atol=1e-5)


def test_the_device_is_described_with_its_matmul_speed():
    device = keras_runs.describe_device({"cpu": 256, "gpu": 256})
    assert all(1e7 < flops < 1e15 for flops in device["matmul_flops"].values())
    assert {"keras_seq", "keras", "tensorflow"} < device["versions"].keys()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--cases", 11), "--cases 11: expected numbers from 1 to 10"),
        (("--repeats", 0), "--repeats 0"),
        (("--kinds", "as_run", "--against", "nowhere"), "--against nowhere: expected a checkout"),
        (("--against", ROOT), "expected --kinds as_run or time_to_loss"),
    ],
)
def test_a_mistake_is_one_sentence(fails, tmp_path, options, named):
    assert named in fails(benchmark.main, *options, "--log-dir", tmp_path)
    assert not [*tmp_path.iterdir()]


def smoke_report(process, logs):
    """Return the contents of result.json after a smoke run, and check its report."""
    assert process.returncode == 0, process.stdout + process.stderr
    (folder,) = (logs / "benchmark").iterdir()
    results = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for result in results["cases"]:
        assert result["errors"] == {}
        assert all(len(m["repeats"]) == 2 and m["peak_megabytes"] > 10 for m in result["measurements"].values())
        assert all(result[key] > 0 for key in result if key.startswith("speedup_vs_") and result[key] is not None)
    assert report.report_text(results) in (folder / "benchmark.md").read_text(encoding="utf-8")
    assert report.report_text(results) in process.stdout
    return results


@pytest.mark.smoke
def test_a_tiny_run_leaves_its_report(python, tmp_path):
    process = python("-m", "experiments.benchmark", "--smoke", "--log-dir", tmp_path)
    names = [result["name"] for result in smoke_report(process, tmp_path)["cases"]]
    assert names == [case.name for case in SMOKE_CASES]


@pytest.mark.parametrize("backend", [needs("jax"), needs("torch")])
def test_a_tiny_run_on_another_backend_without_tensorflow(tmp_path, backend):
    options = ("--backend", backend, "--smoke", "--log-dir", tmp_path / "logs")
    process = without_tensorflow(tmp_path, backend, "-m", "experiments.benchmark", *options)
    results = smoke_report(process, tmp_path / "logs")
    assert [result["name"] for result in results["cases"]] == [case.name for case in SMOKE_CASES]
    assert backend in results["device"]["versions"]


@pytest.mark.slow
def test_a_worker_that_fails_is_reported_with_its_error():
    case = Case("step", "transformer", batch_size=1, sequence_length=4, embedding_dim=7, num_heads=2)
    _, errors = turns.take_turns(BenchmarkConfig(repeats=1, seconds=0.01), case, ["keras_seq"], "cpu")
    assert re.search(r"ValueError: .*7.* \(exit status 1\)", errors["keras_seq"])


def test_the_command_of_nano_gpt_trains_its_transformer():
    """Check the model of nanoGPT's config/train_shakespeare_char.py: 10.65 million parameters without positions."""
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"python -m (experiments\.compare --models gpt2 .*?)\n\n", text, flags=re.DOTALL)
    script, *arguments = shlex.split(command.replace("\\\n", " "))
    config = command_line(CompareConfig, script, "", arguments)
    width, model = 384, config.model("gpt2")
    without_positions = 65 * width + 6 * (12 * width**2 + 2 * width) + width
    assert model.count_params(65) == without_positions + 256 * width
    assert f"{without_positions / 1e6:.2f}" == "10.65"
    assert (config.steps, config.batch_size, config.sequence_length, model.dropout) == (5000, 64, 256, 0.2)
    train = config.train
    assert (train.optimizer, train.learning_rate, train.final_lr_fraction) == ("adamw", 1e-3, 0.1)
    assert (train.warmup_steps, train.weight_decay, train.beta_2, train.global_clipnorm) == (100, 0.1, 0.99, 1.0)
