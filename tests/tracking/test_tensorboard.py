import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from keras_seq.tracking import Summaries, TokenTensorBoard, write_hparams_config
from keras_seq.tracking.tensorboard import write_custom_scalars_layout
from keras_seq.training import WarmupLinearDecay


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def points(folder, tag):
    return {event.step: float(tf.make_ndarray(event.tensor_proto)) for event in read(folder).Tensors(tag)}


def hparams(folder, tag):
    content = read(folder).summary_metadata[tag].plugin_data.content
    return plugin_data_pb2.HParamsPluginData.FromString(content)


@pytest.fixture
def run(tmp_path):
    """A run of two points and a validation, as `fit_resumable` writes it."""
    folder = tmp_path / "lstm-seed0"
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(WarmupLinearDecay(0.5, total_steps=4)), "mse")
    board = TokenTensorBoard(folder)
    board.set_model(model)
    board.write_hparams({"model.name": "lstm", "seed": 3, "train.momentum": 0.5, "windows.stateful": True})
    for tokens, loss in ((3072, 2.5), (6144, 2.25)):
        board.record(tokens, {"loss": loss, "gradient_norm": loss / 2})
    scalars = {"val_loss": 2.375, "val_loss_streaming": 2.0, "accuracy": 0.5, "gates/open": 0.25}
    image = np.full((3, 2, 3), 200, "uint8")
    texts, histograms = {"sample": "To be,\n  or *not* to be\n"}, {"gates/all": np.arange(30).reshape(5, 6)}
    board.write(6144, Summaries(scalars, texts, {"attention": image}, histograms))
    board.on_train_end()
    return folder


def test_training_and_validation_loss_stand_in_one_chart_over_tokens(run):
    assert points(run / "train", "epoch_loss") == {3072: 2.5, 6144: 2.25}
    assert points(run / "validation", "epoch_loss") == {6144: 2.375}
    assert points(run / "validation", "epoch_loss_streaming") == {6144: 2.0}
    assert points(run / "validation", "epoch_accuracy") == {6144: 0.5}
    assert points(run / "train", "epoch_gradient_norm") == {3072: 1.25, 6144: 1.125}
    assert points(run / "train", "epoch_learning_rate") == {3072: 0.5, 6144: 0.5}


def test_each_loss_has_a_name_of_its_own_so_that_a_chart_can_overlay_the_models(run):
    assert points(run, "Loss/training") == {3072: 2.5, 6144: 2.25}
    assert points(run, "Loss/validation") == {6144: 2.375}
    assert points(run, "Loss/validation_streaming") == {6144: 2.0}


def test_scalars_with_a_group_belong_to_the_run_as_a_whole(run):
    assert points(run, "gates/open") == {6144: 0.25}
    assert not any("gates" in tag for tag in read(run / "validation").Tags()["tensors"])


def test_a_histogram_counts_all_values(run):
    (event,) = read(run).Tensors("gates/all")
    buckets = tf.make_ndarray(event.tensor_proto)
    assert event.step == 6144
    assert buckets[:, 2].sum() == 30
    assert (buckets[0, 0], buckets[-1, 1]) == (0, 29)


def test_both_of_two_is_what_either_found():
    one = Summaries({"loss": 1.0, "a/b": 2.0}, {"sample": "x"}, {"p": 1}, {"h": 2})
    other = Summaries({"loss": 3.0}, {"more": "y"}, {}, {"i": 4})
    both = one | other
    assert both == Summaries({"loss": 3.0, "a/b": 2.0}, {"sample": "x", "more": "y"}, {"p": 1}, {"h": 2, "i": 4})
    assert both.format_scalars() == "validation: loss 3"  # what has a group is detail


def test_the_layout_of_a_folder_names_the_charts(tmp_path):
    write_custom_scalars_layout(tmp_path, {"Losses": {"training": "Loss/training", "validation": "Loss/validation"}})
    (event,) = read(tmp_path).Tensors("custom_scalars__config__")
    (category,) = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0]).category
    charts = {chart.title: [*chart.multiline.tag] for chart in category.chart}
    assert (category.title, charts) == (
        "Losses",
        {"training": ["^Loss/training$"], "validation": ["^Loss/validation$"]},
    )


def test_a_sample_keeps_its_spaces_and_line_breaks(run):
    (event,) = read(run).Tensors("sample")
    assert event.step == 6144
    assert event.tensor_proto.string_val[0].decode() == "    To be,\n      or *not* to be"


def test_the_row_of_the_hparams_table_has_every_setting(run):
    values = hparams(run, "_hparams_/session_start_info").session_start_info.hparams
    assert {name: value.WhichOneof("kind") for name, value in values.items()} == {
        "model.name": "string_value",
        "seed": "number_value",
        "train.momentum": "number_value",
        "windows.stateful": "bool_value",
    }
    assert values["model.name"].string_value == "lstm"
    assert values["seed"].number_value == 3


def test_the_table_of_a_folder_shows_the_final_scores_of_both_splits(tmp_path):
    write_hparams_config(tmp_path, ("model.name", "seed"))
    experiment = hparams(tmp_path, "_hparams_/experiment").experiment
    assert [info.name for info in experiment.hparam_infos] == ["model.name", "seed"]
    assert [(info.name.group, info.name.tag) for info in experiment.metric_infos] == [
        ("validation", "epoch_loss"),
        ("validation", "epoch_loss_streaming"),
        ("train", "epoch_loss"),
    ]


def test_a_image_is_there_as_it_was(run):
    (event,) = read(run).Tensors("attention")
    width, height, png = tf.make_ndarray(event.tensor_proto)
    assert (event.step, int(width), int(height)) == (6144, 2, 3)
    np.testing.assert_array_equal(tf.io.decode_png(png), np.full((3, 2, 3), 200))


def test_what_is_said_once_for_a_folder_is_said_once_however_often_a_comparison_goes_on(tmp_path):
    for _ in range(2):
        write_hparams_config(tmp_path, ("seed",))
        write_custom_scalars_layout(tmp_path, {"Losses": {"training": "Loss/training"}})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_writer_that_fails_is_an_error_of_the_folder(tmp_path, monkeypatch):
    board = TokenTensorBoard(tmp_path / "run")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    board.set_model(model)

    def full(*arguments, **more):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.summary, "scalar", full)
    with pytest.raises(OSError, match="No space left on device") as fault:
        board.record(10, {"loss": 1.0})
    assert fault.value.filename == str(tmp_path / "run")
    board.on_train_end()
