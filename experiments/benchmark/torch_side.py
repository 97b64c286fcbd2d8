"""Differentiate a function, wait for the device and describe it, with PyTorch, under Keras or alone."""

import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
if ON_GPU:
    torch.set_float32_matmul_precision("high")  # TF32, JAX's default for float32


def gradients(function):
    """Return a function from arrays to the gradients of the sum of squares of `function(*arrays)`."""

    def gradients(*arrays):
        arrays = [array.detach().requires_grad_() for array in arrays]
        return torch.autograd.grad(function(*arrays).float().square().sum(), arrays)

    return gradients


def wait(array=None):
    """Wait until all arrays are computed."""
    if ON_GPU:
        torch.cuda.synchronize()


def device() -> tuple[str, str]:
    """Return the platform, "cpu" or "gpu", and the name of the device."""
    return ("gpu", torch.cuda.get_device_name()) if ON_GPU else ("cpu", "cpu")


def peak_bytes() -> int | None:
    """Return the peak memory of the GPU; None on a CPU."""
    return torch.cuda.max_memory_allocated() if ON_GPU else None
