import os
import subprocess
import sys

import pytest

from keras_seq.training.run_lock import lock_run

HOLDS = """
import filelock, pathlib, sys
lock = filelock.FileLock(sys.argv[1] + "/.lock")
lock.acquire()
pathlib.Path(sys.argv[1] + "/.pid").write_text("4321 on elsewhere")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_one_is_refused_and_names_the_first(tmp_path):
    with (
        lock_run(tmp_path),
        pytest.raises(BlockingIOError, match=rf"process {os.getpid()} on") as refused,
        lock_run(tmp_path),
    ):
        pass
    assert refused.value.filename == str(tmp_path)
    with lock_run(tmp_path):
        pass
    assert not (tmp_path / ".pid").exists()


@pytest.mark.parametrize("name", [".lock", ".pid"])
def test_a_folder_in_the_place_of_the_lock_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match="remove it") as refused, lock_run(tmp_path):
        pass
    assert refused.value.filename == str(tmp_path / name)


def test_what_a_killed_process_left_locks_nothing(tmp_path):
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with held:
        assert held.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError, match="process 4321 on elsewhere"), lock_run(tmp_path):
            pass
        held.kill()
    assert (tmp_path / ".pid").exists()
    with lock_run(tmp_path):
        assert (tmp_path / ".pid").read_text().startswith(f"{os.getpid()} ")


def test_the_lock_ends_with_an_error_inside(tmp_path):
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path):
        raise ZeroDivisionError
    with lock_run(tmp_path):
        pass
