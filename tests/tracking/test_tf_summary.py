"""What is written without TensorFlow is what `tf.summary` and the TensorFlow part of tensorboard write."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalars
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import summary as hparams_summary
from tensorboard.util.tensor_util import make_ndarray

from keras_seq.tracking import Summaries, tensorboard
from keras_seq.tracking.tensorboard import EventFile, scalar_proto, summary_protos
from tests.training.ends import events

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (4, 5, 7, 3)).astype("uint8")
HISTOGRAMS = {
    "h/normal": RANDOM.normal(size=(6, 50)).astype("float32"),
    "h/integers": np.arange(60).reshape(5, 12),
    "h/equal": np.full(9, 0.25, "float32"),
    "h/empty": np.zeros((0, 3), "float32"),
    "h/nan": np.array([1.0, 2.0, np.nan]),
}
DESCRIPTIONS = {"loss_by_position": "By position.", "h": "All *values*.", "sample": "Text."}
HPARAMS = {"model.name": "lstm", "bias": True, "rate": 0.25, "units": 4}


def images(value):
    width, height, *files = value.tolist()
    return int(width), int(height), np.stack([Image.open(io.BytesIO(file)) for file in files])


def values(folder):
    """The summaries of a folder's only event file: their step, metadata, type and value, by tag."""
    (path,) = folder.iterdir()
    found = {}
    for event in events(path):
        for value in event.summary.value:
            array = make_ndarray(value.tensor)
            array = images(array) if value.metadata.plugin_data.plugin_name == "images" else array
            assert value.tag not in found
            found[value.tag] = (event.step, value.metadata, value.tensor.dtype, array)
    return found


def assert_equal(written, expected):
    assert [*written] == [*expected]  # in order
    for tag, (*rest, array) in written.items():
        *expected_rest, expected_array = expected[tag]
        assert rest == expected_rest, tag
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            assert array.shape == expected_array.shape, tag
            np.testing.assert_allclose(array, expected_array, rtol=1e-14, atol=1e-15, err_msg=tag)
        else:
            np.testing.assert_equal(array, expected_array, err_msg=tag)


def test_summaries_of_a_validation_are_those_of_tf_summary(tmp_path):
    summaries = Summaries(
        {"val_loss": 1 / 3, "accuracy": 1, "loss_by_position/7": 2.5},
        {"sample": "To be,\n  or *ñot*"},
        {"attention/block": IMAGES, "loss_by_position": IMAGES[0]},
        HISTOGRAMS,
        {},
        DESCRIPTIONS,
    )
    EventFile(tmp_path / "own").write(9, summary_protos(summaries, "steps"))
    writer = tf.summary.create_file_writer(str(tmp_path / "tf"))
    with writer.as_default(step=9):
        loss = "Mean loss of the validation data, in nats per token. Horizontal axis: steps."
        tf.summary.scalar("Loss/validation", 1 / 3, description=loss)
        tf.summary.scalar("Validation/accuracy", 1, description="Horizontal axis: steps.")
        tf.summary.scalar("Validation/loss_by_position/7", 2.5, description="By position. Horizontal axis: steps.")
        tf.summary.text("sample", "    To be,\n      or *ñot*", description="Text.")
        tf.summary.image("diagnostics/attention/block", IMAGES, max_outputs=4)
        tf.summary.image("Validation/loss_by_position", IMAGES[:1], description="By position.")
        for name, array in HISTOGRAMS.items():
            tf.summary.histogram(f"diagnostics/{name}", array, description="All *values*.")
    writer.close()
    assert_equal(values(tmp_path / "own"), values(tmp_path / "tf"))


@pytest.mark.parametrize("number", [0.1, 3, True, float("nan"), float("-inf"), np.float32(0.3), np.int64(7)])
def test_any_number_is_written_as_tf_summary_writes_it(number, tmp_path):
    EventFile(tmp_path / "own").write(2**40, [scalar_proto("x", number, "steps")])
    writer = tf.summary.create_file_writer(str(tmp_path / "tf"))
    with writer.as_default(step=2**40):
        tf.summary.scalar("Training/x", number, description="Horizontal axis: steps.")
    writer.close()
    assert_equal(values(tmp_path / "own"), values(tmp_path / "tf"))


def one(summary):
    """The metadata and value of a summary of one value, from TensorFlow's classes or tensorboard's."""
    (value,) = summary.value
    metadata = SummaryMetadata.FromString(value.metadata.SerializeToString())
    content = metadata.plugin_data.content  # holds a map, whose entries are written in no fixed order
    metadata.plugin_data.ClearField("content")
    array = tf.make_ndarray(tf.compat.v1.Summary.FromString(summary.SerializeToString()).value[0].tensor)
    return value.tag, metadata, plugin_data_pb2.HParamsPluginData.FromString(content), array.dtype, array.tolist()


def test_the_hparams_page_is_that_of_tensorboard(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1234.5)
    expected = hparams_summary.experiment_pb(
        [api_pb2.HParamInfo(name=name, differs=True) for name in HPARAMS],
        [
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag), display_name=name)
            for tag, name in {
                "Result/val_loss": "val_loss (nats per token)",
                "Result/val_accuracy": "val_accuracy",
                "Loss/training": "training loss (nats per token)",
                "Training/seconds": "seconds",
                "Training/tokens_per_second": "tokens_per_second",
                "Loss/validation": "val_loss, last validation",
                "Validation/accuracy": "val_accuracy, last validation",
            }.items()
        ],
        time_created_secs=0,
    )
    assert one(tensorboard.hparams_columns(HPARAMS, ["val_loss", "val_accuracy"])) == one(expected)


def test_the_custom_scalars_page_is_that_of_tensorboard():
    def chart(title, *tags):
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))

    losses = chart("Training and validation loss (nats per token)", "^Loss/training$", "^Loss/validation$")
    categories = {"Losses": losses, "Diagnostics": chart("Widths", "^diagnostics/a/b$")}
    expected = layout_pb2.Layout(
        category=[layout_pb2.Category(title=title, chart=[content]) for title, content in categories.items()]
    )
    assert one(tensorboard.charts(["val_loss"], {"a/b": "Widths"})) == one(custom_scalars.pb(expected))
