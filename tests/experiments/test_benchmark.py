"""nanoGPT's character run: the same model, text, windows and learning rate on both sides, and one command for a GPU."""

import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
import subprocess

import keras
import numpy as np
import pytest

from experiments.benchmark import __main__ as benchmark
from experiments.benchmark import keras_runs, report, turns, worker
from experiments.benchmark import text as benchmark_text
from experiments.benchmark.cases import CASES, SMOKE_CASES, Case
from experiments.benchmark.turns import BenchmarkConfig
from experiments.compare.settings import CompareConfig
from keras_seq.commands.options import command_line
from keras_seq.data import RandomWindows, load_corpus
from keras_seq.models import GPT2Config, TransformerConfig
from tests.experiments.discovery import ROOT
from tests.processes import without_tensorflow

SMALL = {"batch_size": 2, "sequence_length": 6, "embedding_dim": 8, "units": 5, "num_heads": 2, "num_layers": 2}


def needs(library):
    missing = importlib.util.find_spec(library) is None
    return pytest.param(library, marks=[pytest.mark.slow, pytest.mark.skipif(missing, reason=f"needs {library}")])


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
    assert {case.kind for case in SMOKE_CASES} == CASES.keys()


def test_a_case_of_sizes_differs_from_the_others_of_its_model_in_one_size():
    for model in ("lstm", "transformer", "attention"):
        values = [dataclasses.astuple(case) for case in CASES["sizes"] if case.model == model]
        usual = [max(set(column), key=column.count) for column in zip(*values, strict=True)]
        assert all(sum(a != b for a, b in zip(usual, case, strict=True)) <= 1 for case in values)


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_all_sides_have_the_same_parameters(model):
    case = Case("step", model, **SMALL)
    ids = np.zeros((2, 6), "int32")
    sides = [keras_runs.keras_seq_model(case), keras_runs.keras_model(case)]
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

    from experiments.benchmark.torch_runs import Transformer

    case = Case("as_run", "transformer", 2, 6, embedding_dim=8, num_heads=2, num_layers=2)
    ours = TransformerConfig(8, 2, 2, 32, context_length=6, kernel_size=None, use_output_gate=False).build_model(65)
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


ATTENTION = Case("step", "attention", batch_size=2, sequence_length=7, embedding_dim=8, num_heads=2)


def test_attention_is_the_same_function_on_both_sides():
    gradients, reference = (keras_runs.prepare(ATTENTION, name)[0](1) for name in ("keras_seq", "keras"))
    np.testing.assert_allclose(gradients, reference, rtol=1e-4, atol=1e-6)


OTHER_BACKEND = """
import sys, keras, numpy as np
from experiments.benchmark import keras_runs
from experiments.benchmark.cases import Case
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
        (("--against", "nowhere"), "--against nowhere: expected a checkout"),
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


def test_the_numbers_of_cases_are_of_the_list_that_is_measured():
    assert BenchmarkConfig(smoke=True, cases=(len(SMOKE_CASES),)).selected_cases == [SMOKE_CASES[-1]]
    assert BenchmarkConfig(cases=(8,)).selected_cases == [CASES["step"][7]]
    with pytest.raises(ValueError, match=f"--cases 8: expected numbers from 1 to {len(SMOKE_CASES)}"):
        BenchmarkConfig(smoke=True, cases=(8,))


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
    assert (model.activation, train.use_ema) == ("gelu", False)
    assert (train.optimizer, train.learning_rate, train.final_lr_fraction) == ("adamw", 1e-3, 0.1)
    assert (train.warmup_steps, train.weight_decay, train.beta_2, train.global_clipnorm) == (100, 0.1, 0.99, 1.0)


(CASE,) = CASES["nanogpt"]
(SMOKE,) = (case for case in SMOKE_CASES if case.kind == "nanogpt")


def test_the_windows_of_training_and_validation_come_from_different_parts():
    case = dataclasses.replace(SMOKE, sequence_length=64)
    data = benchmark_text.Text(case)
    x, y = data.validation_windows
    assert x.shape == y.shape == (200 * case.batch_size, 64)
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    again, _ = benchmark_text.Text(case).validation_windows
    np.testing.assert_array_equal(again, x)
    corpus = load_corpus("pydoc")
    _, validation = corpus.split()
    characters = sorted({*corpus.text})
    for ids, is_validation in ((x[0], True), (data.windows.batch(0)[0][0], False)):
        text = "".join(characters[n] for n in ids)
        assert (text in validation) is is_validation


def test_both_sides_have_the_learning_rate_of_nanogpt(monkeypatch):
    torch_runs = pytest.importorskip("experiments.benchmark.torch_runs", exc_type=ImportError)
    schedules = []
    monkeypatch.setattr(
        keras_runs.training, "compile_model", lambda *args, schedule, **options: schedules.append(schedule)
    )
    keras_runs.prepare(dataclasses.replace(SMOKE, steps=5000), "keras_seq")
    (schedule,) = schedules
    expected = {0: 1e-3 / 101, 50: 51e-3 / 101, 100: 1e-3, 2550: 5.5e-4, 4999: 1e-4}  # as train.py's get_lr
    for step, rate in expected.items():
        np.testing.assert_allclose(float(schedule(step)), rate, rtol=1e-4)
        np.testing.assert_allclose(1e-3 * torch_runs.warmup_and_cosine(step, 5000), rate, rtol=1e-4)


def test_both_sides_have_the_model_of_nanogpt():
    torch_runs = pytest.importorskip("experiments.benchmark.torch_runs", exc_type=ImportError)
    import torch

    with torch.device("meta"):
        plain = torch_runs.GPT(CASE, bias=False)
    count = sum(parameter.numel() for parameter in plain.parameters())
    assert f"{(count - plain.positions.weight.numel()) / 1e6:.2f}" == "10.65"
    sizes = {"embedding_dim": 384, "num_layers": 6, "num_heads": 6, "feed_forward_dim": 1536, "context_length": 256}
    assert GPT2Config(**sizes, use_bias=False).count_params(65) == count
    assert (CASE.batch_size, CASE.sequence_length, CASE.steps, CASE.dropout) == (64, 256, 5000, 0.2)
    assert (CASE.precision, CASE.steps_per_validation) == ("bfloat16", 250)
    small = dataclasses.replace(CASE, embedding_dim=8, num_heads=2, num_layers=2, sequence_length=5)
    plain, ours = torch_runs.GPT(small, bias=False), keras_runs.keras_seq_model(small)
    assert ours.count_params() == sum(parameter.numel() for parameter in plain.parameters())
    torch_runs.initialize_as_nanogpt(plain)
    assert 0.007 < plain.blocks[0].projection.weight.std() < 0.013  # 0.02 / sqrt(2 x 2 layers)
    assert 0.017 < plain.tokens.weight.std() < 0.023
    ids = torch.zeros((1, 5), dtype=torch.long)
    assert not torch.equal(plain(ids), plain(ids))
    plain.eval()
    torch.testing.assert_close(plain(ids), plain(ids), rtol=0, atol=0)


@pytest.mark.rare
def test_fit_goes_on_where_it_stopped_and_lowers_the_loss(monkeypatch):
    sizes = {"embedding_dim": 16, "batch_size": 8, "sequence_length": 8}
    case = dataclasses.replace(SMOKE, steps=60, precision="float32", dropout=0.0, **sizes)
    seen = []
    dataset = RandomWindows.dataset  # patched before `prepare`, which keeps the method of its windows
    monkeypatch.setattr(RandomWindows, "dataset", lambda *args: seen.append(args[1:]) or dataset(*args))
    keras.utils.set_random_seed(0)
    run_steps, info = keras_runs.prepare(case, "keras_seq")
    before = info["validate"]()["val_loss"]
    assert abs(before - np.log(benchmark_text.Text(case).vocabulary_size)) < 0.1
    for _ in range(2):
        run_steps(30)
    assert seen == [(0, 30), (30, 60)]
    assert info["validate"]()["val_loss"] < before - 0.2


def test_it_stops_after_its_steps_or_its_minutes(monkeypatch):
    class Worker:
        def __init__(self, config, request):
            self.losses = iter([None, 3.0, 1.5, 2.0, *99 * [4.0]])

        def go(self):
            loss = next(self.losses)
            return {} if loss is None else {"tokens_per_second": 10.0, "peak_megabytes": 1.0, "val_loss": loss}

        def close(self):
            pass

    monkeypatch.setattr(turns, "Worker", Worker)
    for minutes, validations in ((10.0, 20), (0.0, 2)):
        measurements, _ = turns.take_turns(BenchmarkConfig(minutes=minutes), CASE, ["keras_seq", "torch"], "cpu")
        found = measurements["torch"]
        assert (len(found["val_losses"]), len(found["repeats"])) == (validations, validations - 1)
        assert found["val_loss"] == 1.5
        result = {"name": "a", "case": dataclasses.asdict(CASE), "measurements": measurements}
        table = str(report.table([{**result, "speedup_vs_torch": 1.0, "matmul_utilization": None}]))
        assert f" {250 * validations:,} of 5,000 " in table
        assert table.count("1.5000") == 2


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_one_command_does_it_all(backend):
    command = ["make", "--dry-run", "gpu", f"BACKEND={backend}", "PYTHON=python3", "ARGS=--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = re.findall(rf"^KERAS_BACKEND={backend} python3 -m experiments\.(\w+) (.+)$", done.stdout, re.MULTILINE)
    classes = {"compare": CompareConfig, "benchmark": BenchmarkConfig}
    configs = [command_line(classes[name], name, "", shlex.split(options)) for name, options in lines]
    assert [name for name, _ in lines] == ["compare", "benchmark", "benchmark"]
    assert configs[0].corpus == "shakespeare"
    assert [config.backend for config in configs[1:]] == [backend, backend]
    assert [config.kinds for config in configs[1:]] == [("nanogpt",), ("step",)]
    assert all(config.smoke for config in configs)
