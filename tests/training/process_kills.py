"""Train in two processes on this machine, kill one of them at a random moment, start both again; also a program.

    python -m tests.training.process_kills --kills 10         a table: who, when, what the other said after how long
    python -m tests.training.process_kills --hang             one is stopped (SIGSTOP) instead: it is lost, not ended

A chain of starts in one folder ends when the training has, and its end is compared with that of two processes that
nobody killed. The processes meet at 127.0.0.1, on JAX, and each has one device.
"""

import argparse
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from tests.training.ends import differences, end

CACHE = tempfile.TemporaryDirectory()  # of compiled programs, which all starts share
ROOT = pathlib.Path(__file__).parents[2]
SENTENCE = "Another process of the training has ended or cannot be reached: start all by the same command"


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_jax(*arguments, simulated=1, **environment):
    """Start `python ...` on JAX with simulated devices; skip a test where it is not installed."""
    pytest.importorskip("jax")
    flags = f"--xla_force_host_platform_device_count={simulated}"
    backend = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command, pipes = [sys.executable, *map(str, arguments)], {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **backend, **environment}, text=True, **pipes)


def start(*commands):
    """Start a process for each command `python ...`; they find each other."""
    cache = {"JAX_COMPILATION_CACHE_DIR": CACHE.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    place = {"JOB_ADDRESSES": f"127.0.0.1:{free_port()}", "NUM_PROCESSES": str(len(commands))}
    places = ({**place, "PROCESS_ID": str(n)} for n in range(len(commands)))
    variables = [{f"KERAS_DISTRIBUTION_{name}": value for name, value in one.items()} for one in places]
    return [on_jax(*command, **cache, **one) for command, one in zip(commands, variables, strict=True)]


def train(folder, *names, victim=None, kill=()):
    """Train in two processes, of which the victim gets `kill`; return `(status, errors, seconds)` of each.

    The seconds are those from the first end of the two.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tests.training.devices_run", "process", folder, *names]
    both = start(*([*command, *(["kill", *kill] if n == victim else [])] for n in range(2)))
    while all(process.poll() is None for process in both):
        time.sleep(0.05)
    ended = time.monotonic()
    results = {}
    for n in sorted(range(2), key=lambda n: both[n].poll() is None):
        errors = both[n].communicate(timeout=120)[1]
        results[n] = both[n].returncode, errors, time.monotonic() - ended
    return results[0], results[1]


def hang(place):
    """Stop one of the processes in the middle; return what the other said, and after how long."""
    rows = []
    for victim in range(2):
        folder = place / f"hang-{victim}"
        folder.mkdir()
        both = start(*[["-m", "tests.training.devices_run", "process", folder, "lstm"]] * 2)
        while not list((folder / "lstm").glob("checkpoints/step-*")):
            time.sleep(0.05)
        both[victim].send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        errors = both[1 - victim].communicate(timeout=120)[1]
        rows.append((victim, both[1 - victim].returncode, errors, time.monotonic() - stopped))
        both[victim].kill()
        both[victim].communicate()
    return rows


def says_why(errors):
    """Whether the last line of a process is the sentence."""
    return SENTENCE in (errors.strip().splitlines() or [""])[-1]


def main():
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hang", action="store_true")
    given, lost = parser.parse_args(), 0
    with tempfile.TemporaryDirectory() as parent:
        place = pathlib.Path(parent)
        if given.hang:
            for victim, status, errors, seconds in hang(place):
                lost += not (says_why(errors) and status == 1 and seconds < 60)
                print(f"process {victim} hangs: the other ends after {seconds:.1f} s with {status}", flush=True)
                print(errors.strip().splitlines()[-1])
            sys.exit(lost > 0)
        for status, errors, _ in train(place / "whole", "lstm"):
            assert status == 0, errors[-3000:]
        expected, chance, kills, chain = end(place / "whole" / "lstm"), random.Random(given.seed), 0, 0
        while kills < given.kills:
            folder, mine, step = place / f"chain-{chain}", 0, 0
            while kills + mine < given.kills and (step := step + chance.randint(1, 20)) < 50:
                victim, seconds = chance.randrange(2), chance.uniform(0, 0.2)
                ends = train(folder, "lstm", victim=victim, kill=(step, seconds))
                statuses = [status for status, _, _ in ends]
                mine += statuses[victim] == -signal.SIGKILL
                status, errors, after = ends[1 - victim]
                fine = status == 0 or (status == 1 and says_why(errors) and after < 60)
                lost += not fine
                print(
                    f"process {victim} is killed {seconds:.2f} s after step {step}: statuses {statuses}, the other "
                    f"ends {after:.1f} s later{'' if fine else errors[-2000:]}",
                    flush=True,
                )
            last = train(folder, "lstm")
            assert [status for status, _, _ in last] == [0, 0], last
            got = end(folder / "lstm")
            wrong = differences(got, expected)
            print(f"chain {chain}: {mine} kills, differs in {wrong}", flush=True)
            kills, lost, chain = kills + mine, lost + mine * bool(wrong), chain + 1
    print(f"{kills - lost} of {kills} kills survived")
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
