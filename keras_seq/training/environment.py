"""Describe what a run was trained with: versions of the software, processor, cores, threads."""

import contextlib
import importlib
import os
import pathlib
import platform
import subprocess

import keras
import numpy as np

import keras_seq


def environment() -> dict:
    """Return the backend, cores, threads, processor and several devices, which can change the last bits of sums."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    threads = ", ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name)) or "one a core"
    machine = {"backend": keras.backend.backend(), "cores": cores, "threads": threads, "processor": _processor()}
    distribution = keras.distribution.distribution()
    return machine if distribution is None else {**machine, "devices": distribution.device_mesh.devices.size}


def _processor():
    """Return the name of the processor, as far as the system gives it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def versions() -> dict:
    """Return the versions of keras_seq, Keras, its backend, NumPy and Python, and the git commit if there is one."""
    backend = keras.backend.backend()
    packages = {"keras_seq": keras_seq, "keras": keras, backend: importlib.import_module(backend), "numpy": np}
    checkout = pathlib.Path(__file__).parents[2]
    commit = None
    if (checkout / ".git").exists():  # not the repository of somebody else that the package is installed in
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            command = ["git", "rev-parse", "HEAD"]
            commit = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    package_versions = {name: package.__version__ for name, package in packages.items()}
    return {**package_versions, "python": platform.python_version(), "commit": commit}
