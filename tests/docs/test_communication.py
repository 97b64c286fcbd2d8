"""The bytes on paper are those of a weight, of a block, and of the programs that XLA compiles."""

import math
import re

import keras
import pytest

from docs.communication import bytes_sent, step_seconds
from keras_seq.models import LSTMConfig, TransformerConfig
from tests.training.devices_run import MESHES, WIDE
from tests.training.test_distributed import on_jax, output

COLLECTIVE = re.compile(r"^\s*(?:ROOT )?%?\S+ = (.*?) (all-reduce|all-gather)\(", re.MULTILINE)


def model(dtype=None):
    return WIDE["config"].build_model(WIDE["vocabulary_size"], dtype)


def sent(built, **mesh):
    return bytes_sent(built, WIDE["batch_size"], WIDE["sequence_length"], **mesh)


def test_one_device_sends_nothing():
    assert set(sent(model()).values()) == {0}
    assert set(sent(model(), shard_weights=True).values()) == {0}


def test_gradients_are_summed_and_sharded_weights_gathered():
    built = LSTMConfig(embedding_dim=4, units=8).build_model(5)
    size = 4 * built.count_params()
    assert sent(built, data=2) == {"gradients": size, "weights": 0, "activations": 0}
    assert sent(built, data=4)["gradients"] == pytest.approx(1.5 * size)
    divided = 4 * sum(math.prod(v.shape) for v in built.weights if any(n % 4 == 0 for n in v.shape))
    assert sent(built, data=4, shard_weights=True)["weights"] == pytest.approx(0.75 * divided)
    assert sent(built, data=1, model_parallel=4)["activations"] == 0  # it has no heads to divide


def test_activations_are_summed_for_each_divided_matrix():
    tensor = 4 * 8 * 16 * 32  # float32 [B, T, D]
    assert sent(model(), model_parallel=2)["activations"] == 2 * 7 * tensor  # q, k, v, gate, output; hidden, output
    assert sent(model("mixed_bfloat16"), model_parallel=2)["activations"] == 7 * tensor
    assert sent(model(), data=2, model_parallel=4)["activations"] == pytest.approx(2 * 7 * tensor * 1.5 / 2)
    halved = 4 * 2 * (5 * 32 * 32 + 2 * 32 * 64)
    assert sent(model(), data=2, model_parallel=2)["gradients"] == 4 * model().count_params() - halved / 2


def test_a_step_computes_and_sends_at_once_the_speed_of_each():
    config = TransformerConfig(embedding_dim=8, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=4)
    built = config.build_model(5)
    computes, sends = step_seconds(built, 8, 4, flops=1e6, bandwidth=1e3, data=2)
    assert sends == pytest.approx(4 * built.count_params() / 1e3)
    assert step_seconds(built, 8, 4, flops=1e6, bandwidth=1e3) == (pytest.approx(2 * computes), 0)
    assert step_seconds(built, 8, 4, flops=2e6, bandwidth=1e3)[0] == pytest.approx(computes)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compiled")
    dump = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train.*"
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count=4 {dump}"}
    output(on_jax("-m", "tests.training.devices_run", "compiled", folder, **flags))
    return {name: (folder / f"{name}.txt").read_text() for name in MESHES}


@pytest.mark.rare
@pytest.mark.parametrize("name", MESHES)
def test_xla_compiles_what_was_computed(programs, name):
    mesh, shard_weights = MESHES[name]
    sizes = {axis: int(n) for axis, n in re.findall(r"(data|model)=(\d)", mesh)}
    data, along_model = sizes["data"], sizes.get("model", 1)
    total = 0
    for shapes, operation in COLLECTIVE.findall(programs[name]):
        for shape in re.findall(r"f32\[([\d,]+)\]", shapes):
            number = along_model if shape.count(",") == 2 else data  # activations [B, T, D]; weights
            once = (number - 1) / number * 4 * math.prod(map(int, shape.split(",")))
            total += once * (2 if operation == "all-reduce" else 1)
    paper = sent(model(), data=data, model_parallel=along_model, shard_weights=shard_weights)
    assert total == pytest.approx(sum(paper.values()), rel=0.02)
    keras.backend.clear_session()
