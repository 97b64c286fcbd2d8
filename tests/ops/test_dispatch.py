"""The decorator that binds a reference to its twins, by a toy of an operation; and what processors do in bfloat16."""

import keras
import pytest

import keras_seq.ops
from keras_seq.ops import dispatch
from keras_seq.ops.dispatch import optimized

pytestmark = pytest.mark.any_backend
BACKEND = keras.backend.backend()


@pytest.fixture
def double():
    @optimized
    def double(x, times=1):
        """Say that the reference ran."""
        return "reference", x, times

    return double


def test_a_predicate_on_the_arguments_chooses(double):
    @double.on(BACKEND, supports=lambda x, times=1: x > 0)
    def fast(x, times=1):
        return "twin", x, times

    assert double(1, times=3) == ("twin", 1, 3)
    assert double(0, 2) == ("reference", 0, 2)
    assert double.twin(1) is fast
    assert double.twin(0) is None
    assert fast(0) == ("twin", 0, 1)


def test_the_twin_of_another_backend_is_not_taken(double):
    other = "jax" if BACKEND != "jax" else "torch"
    double.on(other)(lambda x, times=1: "twin")
    assert double.twin(1) is None


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_device_chooses(double, monkeypatch, device):
    double.on(BACKEND, device=device)(lambda x, times=1: "twin")
    for name in ("cpu", "gpu"):
        monkeypatch.setattr(dispatch, "on_cpu", lambda name=name: name == "cpu")
        assert (double(1) == "twin") == (name == device)


def test_the_reference_runs_in_its_context_and_no_longer(double):
    double.on(BACKEND)(lambda x, times=1: "twin")
    with keras_seq.ops.reference(), keras_seq.ops.reference():
        assert double(1) != "twin"
    assert double(1) == "twin"
    with pytest.raises(KeyError), keras_seq.ops.reference():
        raise KeyError
    assert double(1) == "twin"


def test_an_operation_is_called_and_documented_as_its_reference(double):
    assert double.__name__ == "double"
    assert double.__doc__ == "Say that the reference ran."


AMD, INTEL, ARM = "vendor_id : AuthenticAMD\nflags : ", "vendor_id : GenuineIntel\nflags : ", "Features : "


@pytest.mark.parametrize(
    ("description", "multiplies", "faster"),
    [
        (AMD + "avx2 avx512f", False, False),
        (AMD + "avx512f avx512_bf16", True, True),
        (INTEL + "avx512f avx512_bf16", True, False),
        (INTEL + "avx512f avx512_bf16 amx_bf16 amx_tile", True, True),
        (ARM + "asimd sve i8mm bf16", True, True),
        (ARM + "asimd sve svebf16", False, False),
        ("", False, False),
    ],
)
def test_what_processors_do_in_bfloat16(monkeypatch, description, multiplies, faster):
    monkeypatch.setattr(dispatch, "_processor_description", lambda: description)
    assert dispatch.cpu_multiplies_bfloat16.__wrapped__() is multiplies
    assert dispatch.cpu_is_faster_in_bfloat16.__wrapped__() is faster


def test_instructions_that_onednn_may_not_use_are_not_counted_on(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # or TensorFlow ends the process at a product in bfloat16
    assert not dispatch.cpu_multiplies_bfloat16.__wrapped__()
