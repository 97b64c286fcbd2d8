import os

from keras_seq.training.environment import environment, versions


def test_the_environment_says_on_how_many_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    found = environment()
    assert found["backend"] == "tensorflow"
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["threads"] == "one a core"
    assert found["processor"]
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    assert environment()["threads"] == "TF_NUM_INTRAOP_THREADS=1"


def test_versions_name_the_packages():
    found = versions()
    assert {"keras_seq", "keras", "numpy", "python"} <= found.keys()
    assert all(found.values()) or found["commit"] is None
