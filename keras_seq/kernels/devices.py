"""Test which devices Keras's backend may compute on, and divide rows among those of a Keras distribution."""

import functools
import pathlib
import re

import keras

if keras.backend.backend() == "torch":
    import torch


def on_gpu() -> bool:
    """Return whether Keras, on any backend, has a GPU to compute on."""
    if keras.backend.backend() == "torch":
        return torch.cuda.is_available()
    return any(device.lower().startswith(("gpu", "cuda")) for device in keras.distribution.list_devices())


@functools.cache
def on_cpu() -> bool:
    """Return whether Keras has no GPU to compute on."""
    return not on_gpu()


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether the processor has instructions for products of bfloat16 matrices; False where it cannot be told.

    Without them, TensorFlow rounds partial sums to bfloat16, and a product takes longer than in float32.
    """
    return bool(re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", _processor_description()))


@functools.cache
def cpu_is_faster_in_bfloat16() -> bool:
    """Return whether products of matrices take less time in bfloat16 than in float32.

    Intel's AVX-512 instructions take twice as long, without AMX, which virtual machines may hide; AMD's half as long.
    """
    description = _processor_description()
    has_fast_avx512 = re.search(r"\bavx512_bf16\b", description) and "GenuineIntel" not in description
    return bool(has_fast_avx512 or re.search(r"\b(amx_bf16|bf16)\b", description))


def _processor_description():
    """Return what Linux says of the processor, else an empty text."""
    path = pathlib.Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def divide_rows(x):
    """Divide the rows of a tensor among the devices of Keras's distribution, inside compiled code.

    Args:
        x: `[B, ...]`.

    Returns:
        The same tensor; without a distribution, or if its devices do not divide B, as it is.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or x.shape[0] % distribution.num_model_replicas:
        return x
    return keras.distribution.distribute_tensor(x, distribution.get_data_layout(x.shape))


def clear_session(free_memory: bool = True) -> None:
    """Clear Keras's names and random state, but not its distribution, which `keras.backend.clear_session` drops.

    Args:
        free_memory: Whether to collect garbage, which takes a quarter of a second.
    """
    distribution = keras.distribution.distribution()
    keras.backend.clear_session(free_memory)
    keras.distribution.set_distribution(distribution)


def seed_dropout(seed: int) -> None:
    """Seed torch's own generator, from which Keras draws on torch for dropout without a seed; elsewhere do nothing.

    Args:
        seed: Any integer.
    """
    if keras.backend.backend() == "torch":
        torch.manual_seed(seed)
