import keras
import numpy as np
import pytest
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from keras_seq.callbacks import Profiler, diagnostics


@pytest.fixture
def fit():
    def fit(steps, callback):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        model.fit(np.ones((2 * steps, 4)), np.ones((2 * steps, 3)), batch_size=2, verbose=0, callbacks=[callback])

    return fit


def test_the_trace_names_the_operations_of_a_step(fit, tmp_path):
    fit(3, Profiler(tmp_path))
    (trace,) = (tmp_path / "plugins" / "profile").glob("*/*.xplane.pb")
    names = {
        metadata.name
        for plane in XSpace.FromString(trace.read_bytes()).planes
        for metadata in plane.event_metadata.values()
    }
    assert any("MatMul" in name for name in names)


def test_a_fit_of_one_step_says_that_there_is_no_trace(fit, tmp_path, capsys):
    fit(1, Profiler(tmp_path))
    assert "Profiler traced nothing" in capsys.readouterr().out
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("installed", [True, False])
def test_it_says_what_to_install_where_tensorboard_could_not_show_it(fit, tmp_path, capsys, monkeypatch, installed):
    monkeypatch.setattr(diagnostics, "PLUGIN", "json" if installed else "no_such_plugin")
    fit(1, Profiler(tmp_path))
    assert ("pip install tensorboard-plugin-profile." in capsys.readouterr().out) is not installed
