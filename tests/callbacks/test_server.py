"""What a running TensorBoard server says of a comparison, asked over HTTP as its pages ask."""

import itertools
import json
import urllib.parse

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_seq.callbacks import AttentionMaps, GateSaturation
from tests.callbacks.conftest import MODELS, STEPS, TOKENS, VOCABULARY

pytestmark = pytest.mark.rare  # what the event files hold is also tested by the callbacks and in tests/tracking
RUNS = [f"{name}-seed0" for name in MODELS]


def plugin(server, name, route, **query):
    return server.json(f"plugin/{name}/{route}", **query)


def scalars(server, run, tag):
    points = plugin(server, "scalars", "scalars", run=run, tag=tag)
    return [(step, pytest.approx(value, rel=1e-5)) for _, step, value in points]


def test_all_runs_are_on_one_page(server):
    assert {*server.json("runs")} == {*RUNS}


@pytest.mark.parametrize("run", RUNS)
def test_every_curve_is_the_one_on_disk_over_tokens_also_of_the_run_that_was_killed(server, lines, run):
    training = [(line["tokens"], line["loss"]) for line in lines(run, "train")]
    assert [tokens for tokens, _ in training] == [step * TOKENS for step in range(2, STEPS + 1, 2)]
    val_loss, streaming = (
        [(line["tokens"], line[key]) for line in lines(run, "validation")] for key in ("val_loss", "val_loss_streaming")
    )
    assert len(val_loss) == 2
    assert scalars(server, run, "Loss/training") == training
    assert scalars(server, run, "Loss/validation") == val_loss
    assert scalars(server, run, "Loss/validation_streaming") == streaming
    key = "loss_by_position/0"
    assert scalars(server, run, f"Validation/{key}") == [
        (line["tokens"], line[key]) for line in lines(run, "validation")
    ]


def test_custom_scalars_overlay_the_models(server, lines):
    categories = plugin(server, "custom_scalars", "layout")["category"]
    charts = {chart["title"]: chart["multiline"]["tag"] for category in categories for chart in category["chart"]}
    assert {title: len(tags) for title, tags in charts.items()} == {
        "Training and validation loss (nats per token)": 2,
        "Gain from preceding text (nats per token)": 2,
        "Loss at position 0 (nats per token)": 1,
        "Loss at positions 6 to 7 (nats per token)": 1,
    }
    for run, tag in itertools.product(RUNS, itertools.chain(*charts.values())):
        answer = plugin(server, "custom_scalars", "scalars", run=run, tag=tag)
        assert answer["regex_valid"]
        ((_, points),) = answer["tag_to_events"].items()
        assert len(points) == (4 if "training" in tag else 2)


def test_the_hparams_table_has_settings_and_final_scores(server, comparison, lines):
    experiment = server.json("plugin/hparams/experiment", {"experimentName": ""})
    metrics = [info["name"] for info in experiment["metricInfos"]]
    columns = ["model.name", "parameters (millions)", "seed", "train.learning_rate", "windows", "train.optimizer"]
    assert [info["name"] for info in experiment["hparamInfos"]] == columns
    request = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [{"metric": name} for name in metrics],
        "startIndex": 0,
        "sliceSize": 10,
    }
    groups = server.json("plugin/hparams/session_groups", request)["sessionGroups"]
    assert {group["hparams"]["model.name"] for group in groups} == {*MODELS}
    for group in groups:
        run = f"{group['hparams']['model.name']}-seed0"
        assert group["name"] == run
        assert group["hparams"]["seed"] == "0"
        result = json.loads((comparison.folder / run / "result.json").read_text(encoding="utf-8"))
        assert group["hparams"]["parameters (millions)"] == pytest.approx(result["parameters"] / 1e6)
        (*_, train), (*_, validation) = lines(run, "train"), lines(run, "validation")
        expected = {
            "Loss/training": train["loss"],
            "Training/seconds": train["seconds"],
            "Training/tokens_per_second": train["tokens_per_second"],
            "Result/val_loss": result["val_loss"],
            "Result/val_loss_streaming": result["val_loss_streaming"],
            "Result/val_bits_per_character": result["val_bits_per_character"],
            "Loss/validation": validation["val_loss"],
            "Loss/validation_streaming": validation["val_loss_streaming"],
            "Validation/bits_per_character": validation["val_bits_per_character"],
        }
        shown = {value["name"]["tag"]: value["value"] for value in group["metricValues"]}
        assert shown == {tag: pytest.approx(value, rel=1e-5) for tag, value in expected.items()}


def test_there_is_a_sample_of_text_for_each_validation(server, comparison):
    for run in RUNS:
        samples = plugin(server, "text", "text", run=run, tag="sample")
        assert [sample["step"] for sample in samples] == [4 * TOKENS, 8 * TOKENS]
        final = json.loads((comparison.folder / run / "result.json").read_text(encoding="utf-8"))["sample"]
        words = [word for word in final.replace("<", "&lt;").replace(">", "&gt;").split() if word.isalnum()]
        assert all(word in samples[-1]["text"] for word in words)
        assert "<pre>" in samples[-1]["text"]  # its spaces kept


def test_images_are_those_of_the_diagnostic(server, comparison, rows):
    transformer = comparison.models["transformer"]
    tokens = [VOCABULARY.decode([n]) for n in rows[0]]
    ((name, expected),) = AttentionMaps(rows, tokens).compute_summaries(transformer).images.items()
    tag, by_position = f"diagnostics/{name}", "Validation/loss_by_position"
    tags = {run: {*of_run} for run, of_run in plugin(server, "images", "tags").items()}
    assert tags == {"lstm-seed0": {by_position}, "transformer-seed0": {tag, by_position}}
    for head, image in enumerate(expected):
        images = plugin(server, "images", "images", run="transformer-seed0", tag=tag, sample=head)
        assert [image["step"] for image in images] == [4 * TOKENS, 8 * TOKENS]
        query = dict(urllib.parse.parse_qsl(images[-1]["query"]))
        picture = tf.io.decode_png(server.bytes("plugin/images/individualImage", **query)).numpy()
        np.testing.assert_array_equal(picture, image)


def test_histograms_count_every_gate_and_every_row_of_attention(server, comparison, rows):
    lstm, transformer = (comparison.models[name] for name in ("lstm", "transformer"))
    expected = {
        "lstm-seed0": GateSaturation(rows).compute_summaries(lstm).histograms,
        "transformer-seed0": AttentionMaps(rows).compute_summaries(transformer).histograms,
    }
    tags = {run: {*of_run} for run, of_run in plugin(server, "histograms", "tags").items()}
    assert tags == {run: {f"diagnostics/{name}" for name in of_run} for run, of_run in expected.items()}
    for run, of_run in expected.items():
        for name, values in of_run.items():
            points = plugin(server, "histograms", "histograms", run=run, tag=f"diagnostics/{name}")
            assert [step for _, step, _ in points] == [4 * TOKENS, 8 * TOKENS]
            buckets = points[-1][2]
            assert sum(count for _, _, count in buckets) == values.size
            assert buckets[0][0] == pytest.approx(values.min(), abs=1e-6)
            assert buckets[-1][1] == pytest.approx(values.max(), abs=1e-6)
            assert all(low[1] == pytest.approx(high[0]) for low, high in itertools.pairwise(buckets))


def test_the_projector_loads_every_embedding_with_its_labels(server, comparison):
    assert {*plugin(server, "projector", "runs")} == {*RUNS}
    for name, run in zip(MODELS, RUNS, strict=True):
        (embedding,) = plugin(server, "projector", "info", run=run)["embeddings"]
        weights = keras.ops.convert_to_numpy(comparison.models[name].embedding.embeddings)
        assert embedding["tensorShape"] == [*weights.shape]
        query = {"run": run, "name": embedding["tensorName"]}
        vectors = np.frombuffer(server.bytes("plugin/projector/tensor", **query), "float32")
        np.testing.assert_allclose(vectors.reshape(weights.shape), weights, rtol=1e-6)
        header, *labels = server.bytes("plugin/projector/metadata", **query).decode().splitlines()
        assert header == "token\tclass\tid"
        assert len(labels) == VOCABULARY.vocabulary_size
        assert "·\twhite space" in "\n".join(labels)
        assert server.bytes("plugin/projector/sprite_image", **query).startswith(b"\x89PNG")
