"""A resumed run shows each point once, as TensorBoard's own readers have it: its data server, and the one in Python."""

import time

import keras
import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.data import server_ingester
from tensorboard.util.grpc_util import ChannelCredsType

from keras_seq.tracking import Summaries, TokenTensorBoard

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the data server
ENDS = {  # of the killed start's file: what the reader then has of the points at 10, 20, ..., 50 tokens
    "whole": (lambda data: data, 5),
    "torn": (lambda data: data[:-3], 5),
    "gone": (lambda data: b"", 0),
}


def of_python(folder):
    """What `tensorboard --load_fast=false` reads."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    return MultiplexerDataProvider(multiplexer, str(folder))


def of_data_server(folder):
    """What `tensorboard` reads where its package has a binary of the data server; it ends with this process."""
    try:
        binary = server_ingester.get_server_binary()
    except server_ingester.NoDataServerError as error:
        pytest.skip(str(error))
    options = {"reload_interval": 1, "channel_creds_type": ChannelCredsType.LOCAL, "server_binary": binary}
    server = server_ingester.SubprocessServerDataIngester(logdir=str(folder), **options)
    server.start()
    deadline = time.monotonic() + 60
    while not server.data_provider.list_runs(RequestContext(), experiment_id=""):  # it reads in a thread of its own
        assert time.monotonic() < deadline
    return server.data_provider


def start(folder, resumed_at, last, value):
    """A start of a run that logs up to some tokens, and its event file."""
    board = TokenTensorBoard(folder / "run")
    board.resume_at(resumed_at)
    board.write_settings({"seed": 1}, keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    for tokens in range(resumed_at + 10, last + 10, 10):
        board.record(tokens, {"loss": value})
        if tokens % 20 == 0:
            board.write(tokens, Summaries({"val_loss": value}, {"sample": "to be"}))
    return board._file.path


@pytest.mark.parametrize("provider", [of_python, of_data_server])
@pytest.mark.parametrize("end", ENDS)
def test_each_point_is_shown_once_whatever_the_clock_says(tmp_path, monkeypatch, provider, end):
    monkeypatch.setattr("time.time", iter(range(10**9, 0, -1)).__next__)  # it goes back
    damage, kept = ENDS[end]
    killed = start(tmp_path, 0, 100, 1.0)
    killed.write_bytes(damage(killed.read_bytes()))
    start(tmp_path, 50, 70, 2.0)  # and killed again, before its first checkpoint
    start(tmp_path, 50, 120, 3.0)
    monkeypatch.undo()
    found = provider(tmp_path)
    query = {"experiment_id": "", "downsample": 1000}
    scalars = found.read_scalars(RequestContext(), plugin_name="scalars", **query)["run"]
    curves = {tag: [(point.step, point.value) for point in points] for tag, points in scalars.items()}
    first = [(tokens, 1.0) for tokens in (10, 20, 30, 40, 50)]
    last = [(tokens, 3.0) for tokens in (60, 70, 80, 90, 100, 110, 120)]
    assert curves["Loss/training"] == [*first[:kept], *last]
    even = [point for point in [*first[:kept], *last] if point[0] % 20 == 0]
    assert curves["Loss/validation"] == even
    texts = found.read_tensors(RequestContext(), plugin_name="text", **query)["run"]
    assert [point.step for point in texts["sample"]] == [tokens for tokens, _ in even]


@pytest.mark.parametrize("provider", [of_python, of_data_server])
def test_a_run_without_a_checkpoint_begins_anew(tmp_path, provider):
    start(tmp_path, 0, 40, 1.0)
    start(tmp_path, 0, 30, 2.0)
    query = {"plugin_name": "scalars", "experiment_id": "", "downsample": 1000}
    scalars = provider(tmp_path).read_scalars(RequestContext(), **query)["run"]
    points = [(point.step, point.value) for point in scalars["Loss/training"]]
    assert points == [(10, 2.0), (20, 2.0), (30, 2.0)]
