"""Which kernel is chosen for an operation, a backend and a device. No GPU is needed."""

import keras
import numpy as np
import pytest

from keras_seq import kernels, layers

pytest.importorskip("jax")


@pytest.fixture
def device(monkeypatch):
    """Makes JAX the backend and a CPU or GPU its device, as far as the choice of kernels goes."""
    monkeypatch.setattr(kernels, "_MODULES", kernels._modules("jax"))

    def choose(name):
        monkeypatch.setattr(keras.distribution, "list_devices", lambda: [f"{name}:0"])
        kernels.devices.on_cpu.cache_clear()

    yield choose
    monkeypatch.undo()
    kernels.devices.on_cpu.cache_clear()


def chosen(name, *args):
    kernel = kernels.dispatch(name, None, *args)
    return kernel and kernel.__module__.removeprefix("keras_seq.kernels.")


@pytest.mark.parametrize(
    ("name", "recurrence", "rnn"), [("cpu", "jax.linear_recurrence", None), ("gpu", None, "cudnn")]
)
def test_jax_scans_on_a_cpu_and_runs_cudnn_on_a_gpu(device, name, recurrence, rnn):
    device(name)
    layer, a = layers.LSTM(3), np.ones((1, 2, 3), "float32")
    layer.build((1, 2, 3))
    assert chosen("linear_recurrence", a, a, a[:, 0]) == recurrence
    assert chosen("fused_rnn", layer) == rnn
    assert chosen("fused_rnn", layer, None, None, False) is None  # not in training
    assert chosen("lstm", np.ones((1, 2, 12)), np.ones((3, 12)), a[:, 0], a[:, 0]) == "jax.lstm"


def test_a_name_without_a_kernel_on_this_backend_gives_the_reference():
    assert kernels.dispatch("direct_call", None, layers.Dense(1), (), {}) is None
