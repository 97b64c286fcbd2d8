"""A run on several devices is a run on one: losses, scores, samples and checkpoints; what does not fit is refused.

The devices are simulated ones of one processor (`--xla_force_host_platform_device_count`), in a process of its own.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_seq.models import MODELS as MODELS_BY_NAME
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.training import devices

MODELS = ("lstm", "transformer", "mamba")
ROOT = pathlib.Path(__file__).parents[2]


def on_jax(*arguments, simulated=1, **environment):
    """Start `python ...` on JAX with simulated devices."""
    pytest.importorskip("jax")
    flags = f"--xla_force_host_platform_device_count={simulated}"
    backend = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **backend, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process):
    """Wait for a process, and return what it printed."""
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr[-3000:]
    return stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    output(on_jax("-m", "tests.training.devices_run", "devices", folder, simulated=4))
    return json.loads((folder / "results.json").read_text())


@pytest.mark.rare
@pytest.mark.parametrize("number", ["2", "4", "elastic"])
@pytest.mark.parametrize("name", MODELS)
def test_a_run_on_several_devices_is_that_on_one(results, name, number):
    if f"{name}-{number}" not in results:
        pytest.skip("the LSTM's run, which carries its state, is the one that changes its devices")
    one, several = results[f"{name}-1"], results[f"{name}-{number}"]
    assert len(one["losses"]) == 50
    assert min(one["losses"][-10:]) < one["losses"][0] - 0.005  # it learns
    np.testing.assert_allclose(several["losses"], one["losses"], atol=1e-5)
    np.testing.assert_allclose(several["scores"], one["scores"], atol=1e-5)
    assert several["score"] == pytest.approx(one["score"], abs=1e-5)
    assert several["texts"] == one["texts"]


@pytest.mark.rare
@pytest.mark.parametrize("mesh", ["mesh-False", "mesh-True"])
def test_a_mesh_changes_no_loss(results, mesh):
    one, several = results["transformer-1"], results[mesh]
    np.testing.assert_allclose(several["losses"], one["losses"], atol=1e-5)
    np.testing.assert_allclose(several["scores"], one["scores"], atol=1e-5)


@pytest.mark.rare
def test_states_are_divided_like_rows_and_weights_are_copied(results):
    specs = results["lstm-4"]["shardings"]
    states = {path: spec for path, spec in specs.items() if path.endswith("/state")}
    assert states
    assert all(spec[0] == "data" for spec in states.values())
    assert all(set(spec) <= {"None"} for path, spec in specs.items() if path not in states)


@pytest.mark.rare
def test_heads_are_divided_along_model_and_weights_along_data(results):
    for mesh, other in (("mesh-False", "None"), ("mesh-True", "data")):
        specs = results[mesh]["shardings"]
        kernels = {path: spec for path, spec in specs.items() if "query" in path and "kernel" in path}
        assert len(kernels) > 2  # weights, and the optimizer's variables of each
        assert all(spec == [other, "model"] for spec in kernels.values()), kernels
        assert all(spec == ["model", other] for path, spec in specs.items() if "feed_forward/output/kernel" in path)


def test_a_mesh_is_read_in_any_order():
    assert devices.parse_mesh("model=2,data=3") == {"data": 3, "model": 2}
    assert devices.parse_mesh("data=4") == {"data": 4, "model": 1}
    for wrong in ("4", "data=0", "data=2,data=3", "rows=2", "data=2,", "", "data=2 model=2"):
        with pytest.raises(ValueError, match=r"--mesh .*: expected sizes of its axes"):
            devices.parse_mesh(wrong)


BLOCKS = {"num_layers": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "context_length": 4}


@pytest.mark.parametrize("name", ["transformer", "gpt2", "llama", "bert", "seq2seq"])
def test_every_matrix_of_a_block_is_divided(name):
    sizes = {"embedding_dim": 8, "num_heads": 2, "feed_forward_dim": 12, **BLOCKS}
    config = MODELS_BY_NAME[name](**{k: v for k, v in sizes.items() if k in MODELS_BY_NAME[name].__dataclass_fields__})
    weights = [
        v
        for v in config.build_model(7).trainable_variables
        if re.search("attention|feed_forward", v.path) and len(v.shape) == 2
    ]
    assert len(weights) >= 6
    for weight in weights:
        axes = devices.divided_axes(weight.path, weight.shape, {"data": 2, "model": 2}, shard_weights=True)
        assert sorted(axes) == ["data", "model"], weight.path
        assert (axes[0] == "model") == weight.path.endswith("output/kernel"), weight.path


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it is allowed there")
def test_several_devices_need_jax():
    for options in ({"devices": 2}, {"devices": "all"}, {"mesh": "data=2"}):
        with pytest.raises(ValueError, match=r"on JAX only.*expected KERAS_BACKEND=jax"):
            devices.use_devices(**options)
    with pytest.raises(ValueError, match="--shard-weights: expected --devices"):
        devices.use_devices(shard_weights=True)
    devices.use_devices()
    assert keras.distribution.distribution() is None


def test_what_the_devices_do_not_divide_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "mesh_size", {"data": 4, "model": 2}.get)
    devices.check_rows("--batch-size", 12)
    with pytest.raises(ValueError, match=r"--batch-size 10: expected a multiple of the 4 devices .* 1 or 2 of them"):
        devices.check_rows("--batch-size", 10)
    devices.check_model("lstm", LSTMConfig(units=5))
    devices.check_model("transformer", TransformerConfig(num_heads=4))
    with pytest.raises(ValueError, match=r"--transformer\.num-heads 1: expected a multiple of 2"):
        devices.check_model("transformer", TransformerConfig(num_heads=1))


REFUSALS = """
import sys, keras
from keras_seq.training.devices import use_devices
for options in ({"devices": 3}, {"mesh": "data=2,model=2"}, {"devices": 2, "mesh": "data=1,model=1"}, {"devices": 0}):
    try:
        use_devices(**options)
    except ValueError as error:
        print(error)
use_devices(1)
assert keras.distribution.distribution() is None
"""


@pytest.mark.rare
def test_devices_that_are_not_there_are_refused():
    lines = output(on_jax("-c", REFUSALS, simulated=2)).splitlines()
    assert len(lines) == 4
    assert [line.partition(":")[0] for line in lines] == [
        "--devices 3",
        "--mesh data=2,model=2",
        "--devices 2",
        "--devices 0",
    ]
