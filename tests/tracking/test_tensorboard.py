import errno
import io
import pathlib
import resource

import keras
import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.util.tensor_util import make_ndarray

from keras_seq import training
from keras_seq.tracking import Summaries, TokenTensorBoard, scored_key
from keras_seq.tracking.tensorboard import EventFile, describe
from tests.training.ends import events

SETTINGS = {
    "experiment.tokens": 9,
    "model.name": "lstm",
    "model.units": 4,
    "windows": "stateful",
    "seed": 3,
    "train.momentum": 0.5,
    "train.learning_rate": 0.5,
}


def read(folder):
    events = EventAccumulator(str(folder), {"tensors": 0})
    events.Reload()
    return events


def points(folder, tag):
    return {event.step: float(make_ndarray(event.tensor_proto)) for event in read(folder).Tensors(tag)}


def hparams(folder, tag):
    content = read(folder).summary_metadata[tag].plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


@pytest.fixture
def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.5), "mse", metrics=["mae"])
    return model


@pytest.fixture
def run(tmp_path, model):
    """A run of two points and a validation, as `fit_resumable` writes it."""
    folder = tmp_path / "lstm-seed0"
    board = TokenTensorBoard(folder)
    board.write_settings(SETTINGS, model)
    for tokens, loss in ((3072, 2.5), (6144, 2.25)):
        board.record(tokens, {"loss": loss, "gradient_norm": loss / 2})
    scalars = {"val_loss": 2.375, "val_loss_streaming": 2.0, "accuracy": 0.5, "gates/open": 0.25, "at/7": 1.5}
    images = {"one": np.full((3, 2, 3), 200, "uint8"), "two": np.zeros((2, 3, 2, 3), "uint8")}
    texts, histograms = {"sample": "To be,\n  or *not* to be\n"}, {"gates/all": np.arange(30).reshape(5, 6)}
    descriptions = {"gates": "All gates.", "at/6 to 7": "Loss at 6 to 7."}
    board.write(6144, Summaries(scalars, texts, images, histograms, {"at/6 to 7": 1.25}, descriptions))
    return folder


def test_every_number_has_one_tag_in_one_run_over_tokens(run):
    expected = {
        "Loss/training": {3072: 2.5, 6144: 2.25},
        "Loss/validation": {6144: 2.375},
        "Loss/validation_streaming": {6144: 2.0},
        "Training/gradient_norm": {3072: 1.25, 6144: 1.125},
        "Validation/accuracy": {6144: 0.5},
        "diagnostics/gates/open": {6144: 0.25},
        "diagnostics/at/6 to 7": {6144: 1.25},  # in place of at/7, which is in metrics.jsonl
    }
    metadata = read(run).summary_metadata
    scalars = {tag for tag, values in metadata.items() if values.plugin_data.plugin_name == "scalars"}
    assert {tag: points(run, tag) for tag in scalars} == expected
    assert [path.name.split(".")[0] for path in run.rglob("*")] == ["events"]
    assert {*run.parent.iterdir()} == {run}  # TensorBoard would list a run "."


def test_descriptions_say_the_unit_and_the_axis(run):
    said = {tag: metadata.summary_description for tag, metadata in read(run).summary_metadata.items()}
    assert said["Loss/training"].endswith("in nats per token. Horizontal axis: training tokens.")
    assert "from start to end" in said["Loss/validation_streaming"]
    assert said["diagnostics/gates/open"] == "All gates. Horizontal axis: training tokens."
    assert said["diagnostics/gates/all"] == "All gates."
    assert said["Validation/accuracy"] == "Horizontal axis: training tokens."


def test_images_are_there_as_they_were_one_or_several_under_a_name(run):
    (event,) = read(run).Tensors("diagnostics/one")
    width, height, png = make_ndarray(event.tensor_proto)
    assert (event.step, int(width), int(height)) == (6144, 2, 3)
    np.testing.assert_array_equal(Image.open(io.BytesIO(png)), np.full((3, 2, 3), 200))
    (event,) = read(run).Tensors("diagnostics/two")
    assert len(make_ndarray(event.tensor_proto)) == 2 + 2


def test_both_of_two_is_what_either_found():
    one = Summaries({"loss": 1.0, "a/b": 2.0}, {"sample": "x"}, {"p": 1}, {"h": 2}, {"c/0": 3.0})
    other = Summaries({"loss": 3.0}, {"more": "y"}, {}, {"i": 4}, {}, {"c": "C"})
    assert one | other == Summaries(
        {"loss": 3.0, "a/b": 2.0}, {"sample": "x", "more": "y"}, {"p": 1}, {"h": 2, "i": 4}, {"c/0": 3.0}, {"c": "C"}
    )
    assert (one | other).format_scalars() == "validation: loss 3"  # what has a group is detail


def test_numbers_of_a_sample_have_its_name_in_every_place(tmp_path):
    sample = Summaries({"val_loss": 2.0, "accuracy": 0.5, "a/b": 1.0}).of_sample()
    assert sample.scalars == {"val_loss_sample": 2.0, "accuracy_sample": 0.5, "a/b": 1.0}
    assert sample.format_scalars() == "validation sample: loss 2, accuracy 0.5"
    assert [scored_key(key, sample.scalars) for key in ("val_loss", "accuracy", "other")] == [
        *("val_loss_sample", "accuracy_sample", "other")
    ]
    board = TokenTensorBoard(tmp_path)
    board.write(7, sample)
    board.record(7, {"result/val_loss": 3.0})
    tags = {"Loss/validation_sample", "Validation/accuracy_sample", "diagnostics/a/b", "Result/val_loss"}
    assert {*read(tmp_path).Tags()["tensors"]} == {*tags, "custom_scalars__config__"}
    assert describe("val_loss_sample").startswith(
        "Of a sample that is spread evenly over the validation data. Mean loss"
    )
    assert describe("result/val_loss").startswith("After training, over all of the validation data. Mean loss")


def test_charts_of_losses_and_curves_have_titles_and_match_one_tag_each(run):
    (event,) = read(run).Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    charts = {chart.title: [*chart.multiline.tag] for category in layout.category for chart in category.chart}
    assert charts == {
        "Training and validation loss (nats per token)": ["^Loss/training$", "^Loss/validation$"],
        "Gain from preceding text (nats per token)": ["^Loss/validation$", "^Loss/validation_streaming$"],
        "Loss at 6 to 7": ["^diagnostics/at/6\\ to\\ 7$"],
    }


def test_texts_keep_their_spaces_and_settings_are_a_table(run):
    (event,) = read(run).Tensors("sample")
    assert event.step == 6144
    assert event.tensor_proto.string_val[0].decode() == "    To be,\n      or *not* to be"
    (event,) = read(run).Tensors("settings")
    lines = event.tensor_proto.string_val[0].decode().splitlines()
    assert len(lines) == 2 + len(SETTINGS)
    assert lines[-1] == "| experiment.tokens | `9` |"
    assert "| model.units | `4` |" in lines


def test_the_row_of_the_hparams_table_has_the_settings_that_tell_runs_apart(run):
    info = hparams(run, "_hparams_/session_start_info").session_start_info
    assert info.group_name == ""  # TensorBoard then takes the name of the run
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in info.hparams.items()}
    assert values == {
        "model.name": "lstm",
        "parameters (millions)": 3e-6,
        "seed": "3",
        "train.learning_rate": 0.5,
        "windows": "stateful",
    }
    experiment = hparams(run, "_hparams_/experiment").experiment
    assert {info.name for info in experiment.hparam_infos if info.differs} == {*values}  # shown from the start
    assert [info.name.tag for info in experiment.metric_infos] == [
        *("Result/val_loss", "Result/val_loss_streaming", "Loss/training", "Training/seconds"),
        *("Training/tokens_per_second", "Result/val_accuracy"),
        *("Loss/validation", "Loss/validation_streaming", "Validation/accuracy"),
    ]
    assert experiment.metric_infos[0].display_name == "val_loss (nats per token)"


def test_an_epoch_of_ones_own_fit_is_a_point_of_each_curve(model, tmp_path):
    x, y = np.ones((4, 2)), np.ones((4, 1))
    board = TokenTensorBoard(tmp_path, tokens_per_step=10)
    model.fit(x, y, batch_size=2, epochs=2, validation_data=(x, y), verbose=0, callbacks=[board])
    tags = {"Loss/training", "Loss/validation", "Training/mae", "Validation/mae", "Training/learning_rate"}
    assert {*read(tmp_path).Tags()["tensors"]} == tags
    assert all([*points(tmp_path, tag)] == [20, 40] for tag in tags)


def test_batches_are_counted_also_where_several_make_an_update(tmp_path):
    x, y = np.ones((8, 2)), np.ones((8, 1))
    for kind in (keras.optimizers.SGD, training.Adam):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile(kind(0.1, gradient_accumulation_steps=4), "mse")
        folder = tmp_path / kind.__module__
        model.fit(x, y, batch_size=1, verbose=0, callbacks=[TokenTensorBoard(folder, tokens_per_step=10)])
        assert [*points(folder, "Loss/training")] == [80]


def test_a_full_disk_is_an_error_of_the_call_that_met_it(tmp_path):
    board = TokenTensorBoard(tmp_path)
    board.record(10, {"loss": 1.0})
    board._file.path = pathlib.Path("/dev/full")
    for write in (lambda: board.record(20, {"loss": 1.0}), lambda: board.write(20, Summaries({"val_loss": 1.0}))):
        with pytest.raises(OSError, match="No space left on device") as fault:
            write()
        assert (fault.value.errno, fault.value.filename) == (errno.ENOSPC, "/dev/full")
    board.on_train_end()
    assert points(tmp_path, "Loss/training") == {10: 1.0}


def test_a_file_where_the_folder_has_to_be_is_an_error_that_names_it(tmp_path):
    (tmp_path / "run").write_text("mine")
    for folder in (tmp_path / "run", tmp_path / "run/seed0"):
        with pytest.raises((FileExistsError, NotADirectoryError)) as fault:
            TokenTensorBoard(folder).record(10, {"loss": 1.0})
        assert fault.value.filename == str(folder)


def test_two_fits_with_one_callback_go_on_in_one_file(model, tmp_path):
    x, y = np.ones((4, 2)), np.ones((4, 1))
    board = TokenTensorBoard(tmp_path, tokens_per_step=10)
    for _ in range(2):
        model.fit(x, y, batch_size=2, verbose=0, callbacks=[board])
    assert [*points(tmp_path, "Loss/training")] == [20, 40]
    assert len([*tmp_path.iterdir()]) == 1


def test_what_was_written_is_in_the_file_without_a_close(tmp_path):
    file = EventFile(tmp_path / "new" / "run")
    file.write(7, [scalar_pb("loss", 2.0), scalar_pb("val_loss", 3.0)])
    first, *others = events(file.path)
    assert first.file_version == "brain.Event:2"
    assert [(e.step, e.summary) for e in others] == [(7, scalar_pb("loss", 2.0)), (7, scalar_pb("val_loss", 3.0))]


def test_each_file_follows_those_that_are_there_in_the_order_of_names(tmp_path):
    paths = [EventFile(tmp_path).path for _ in range(12)]
    assert sorted(tmp_path.iterdir()) == paths


def test_a_file_that_may_not_grow_is_an_error_that_names_it(tmp_path):
    file = EventFile(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as fault:
            file.write(1, [scalar_pb("loss", n) for n in range(100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert fault.value.filename == str(file.path)
    assert 1 < len([*events(file.path)]) < 100  # the others are intact
