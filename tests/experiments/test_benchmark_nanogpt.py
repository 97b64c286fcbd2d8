"""nanoGPT's character run: the same model, text, windows and learning rate on both sides, and one command for a GPU."""

import dataclasses
import re
import shlex
import shutil
import subprocess

import keras
import numpy as np
import pytest

from experiments.benchmark import keras_runs, nanogpt, report, turns
from experiments.benchmark.case import CASES, SMOKE_CASES
from experiments.benchmark.settings import BenchmarkConfig
from experiments.common.options import command_line
from experiments.compare.settings import CompareConfig
from tests.experiments.conftest import ROOT

(CASE,) = CASES["nanogpt"]
(SMOKE,) = (case for case in SMOKE_CASES if case.kind == "nanogpt")


def test_the_windows_of_training_and_validation_come_from_different_parts():
    case = dataclasses.replace(SMOKE, sequence_length=64)
    data = nanogpt.Data(case)
    x, y = data.validation_windows
    assert x.shape == y.shape == (200 * case.batch_size, 64)
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    again, _ = nanogpt.Data(case).validation_windows
    np.testing.assert_array_equal(again, x)
    corpus = nanogpt.load_corpus("pydoc")
    _, validation = corpus.split()
    characters = sorted({*corpus.text})
    for ids, is_validation in ((x[0], True), (data.windows.batch(0)[0][0], False)):
        text = "".join(characters[n] for n in ids)
        assert (text in validation) is is_validation


def test_both_sides_have_the_learning_rate_of_nanogpt(monkeypatch):
    torch_training = pytest.importorskip("experiments.benchmark.torch_training", exc_type=ImportError)
    schedules = []
    monkeypatch.setattr(
        keras_runs.training, "compile_model", lambda *args, schedule, **options: schedules.append(schedule)
    )
    keras_runs.prepare(dataclasses.replace(SMOKE, steps=5000), "keras_seq")
    (schedule,) = schedules
    expected = {0: 1e-3 / 101, 50: 51e-3 / 101, 100: 1e-3, 2550: 5.5e-4, 4999: 1e-4}  # as train.py's get_lr
    for step, rate in expected.items():
        np.testing.assert_allclose(float(schedule(step)), rate, rtol=1e-4)
        np.testing.assert_allclose(1e-3 * torch_training.warmup_and_cosine(step, 5000), rate, rtol=1e-4)


def test_both_sides_have_the_model_of_nanogpt():
    torch_models = pytest.importorskip("experiments.benchmark.torch_models", exc_type=ImportError)
    import torch

    with torch.device("meta"):
        plain = torch_models.GPT(CASE, bias=False)
    count = sum(parameter.numel() for parameter in plain.parameters())
    assert f"{(count - plain.positions.weight.numel()) / 1e6:.2f}" == "10.65"
    sizes = {"embedding_dim": 384, "num_layers": 6, "num_heads": 6, "feed_forward_dim": 1536, "context_length": 256}
    assert keras_runs.models.models.GPT2Config(**sizes, use_bias=False).count_params(65) == count
    assert (CASE.batch_size, CASE.sequence_length, CASE.steps, CASE.dropout) == (64, 256, 5000, 0.2)
    assert (CASE.precision, CASE.steps_per_validation) == ("bfloat16", 250)
    small = dataclasses.replace(CASE, embedding_dim=8, num_heads=2, num_layers=2, sequence_length=5)
    plain, ours = torch_models.GPT(small, bias=False), keras_runs.models.nanogpt_model(small, 65)
    assert ours.count_params() == sum(parameter.numel() for parameter in plain.parameters())
    torch_models.initialize_as_nanogpt(plain)
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
    keras.utils.set_random_seed(0)
    run_steps, info = keras_runs.prepare(case, "keras_seq")
    before = info["validate"]()["val_loss"]
    assert abs(before - np.log(nanogpt.Data(case).vocabulary_size)) < 0.1
    seen = []
    dataset = nanogpt.RandomWindows.dataset
    monkeypatch.setattr(nanogpt.RandomWindows, "dataset", lambda *args: seen.append(args[1:]) or dataset(*args))
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
