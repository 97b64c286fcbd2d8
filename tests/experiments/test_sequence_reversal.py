import dataclasses
import json
import math
import shutil
import types

import keras
import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments.frame.runs import dataclass_from_dict
from experiments.sequence_reversal import __main__ as sequence_reversal
from experiments.sequence_reversal.scores import (
    ReversalTotals,
    Scorer,
    attention,
    batch_totals,
    causality_verdict,
    to_letters,
)
from experiments.sequence_reversal.settings import SequenceReversalConfig, SmallLSTMConfig, SmallTransformerConfig
from keras_seq.data.synthetic import Reversal
from keras_seq.models import assert_causal
from keras_seq.training import read_metrics

NAMES = SequenceReversalConfig().models
CLOCKS = {"train_seconds", "tokens_per_second", "seconds"}
TASK = Reversal(alphabet_size=6, min_length=1, max_length=5, batch_size=40, seed=2)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def without_clocks(values):
    return {key: value for key, value in values.items() if key not in CLOCKS}


def left_in(logs):
    (folder,) = (logs / "sequence_reversal").iterdir()
    return folder


@pytest.fixture(scope="module")
def smoke(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.sequence_reversal", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = left_in(logs)
    return types.SimpleNamespace(
        folder=folder, rows=read(folder / "sequence_reversal.json"), stdout=done.stdout, stderr=done.stderr
    )


def test_it_leaves_a_whole_folder_for_every_model(smoke):
    runs = [f"{name}-seed0" for name in NAMES]
    assert {path.name for path in smoke.folder.iterdir()} == {
        *runs,
        "sequence_reversal.json",
        "sequence_reversal.md",
        "sequence_reversal.png",
    }
    for run in (smoke.folder / name for name in runs):
        for part in ("config.json", "metrics.jsonl", "model.keras", "result.json"):
            assert (run / part).stat().st_size > 0
        assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == "step-00000300.safetensors"
        config = read(run / "config.json")
        options = dataclass_from_dict(SequenceReversalConfig, config["experiment"])
        name = config["model"]["name"]
        assert config["model"] == {"name": name, **vars(options.model_config(name))}
    assert smoke.stderr == ""


def test_the_rows_are_the_results_of_the_runs(smoke):
    assert [row["model"] for row in smoke.rows] == list(NAMES)
    assert len({row["train_tokens"] for row in smoke.rows}) == 1
    for row in smoke.rows:
        result = read(smoke.folder / row["run"] / "result.json")
        assert result.items() >= {key: value for key, value in row.items() if key not in ("model", "run")}.items()
        assert row["causal"] is row["passed"] is True
        assert row["first_half_loss"] == pytest.approx(math.log(4), rel=0.02)
        lengths = row["by_length"]
        assert [(part["length"], part["trained"]) for part in lengths] == [(n, n <= 3) for n in range(1, 7)]
        # as many sequences at each length, n + 1 ids behind the separator of each
        trained = lengths[:3]
        assert row["sequence_accuracy"] == pytest.approx(np.mean([part["sequence_accuracy"] for part in trained]))
        accuracies, weights = [part["second_half_accuracy"] for part in trained], [2, 3, 4]
        assert row["second_half_accuracy"] == pytest.approx(np.average(accuracies, weights=weights))


def test_the_smallest_training_learns(smoke):
    for row in smoke.rows:
        first, last = (line for line in read_metrics(smoke.folder / row["run"]) if line["split"] == "validation")
        assert last["val_loss"] < first["val_loss"] < math.log(7)
        assert last["second_half_accuracy"] > 0.4  # one in four letters, and the end, which is one id in three


def test_tensorboard_gets_figures_samples_and_the_attention(smoke):
    for row in smoke.rows:
        run = smoke.folder / row["run"]
        events = EventAccumulator(str(run), {"tensors": 0, "images": 0}).Reload()
        tags = {tag: len(events.Tensors(tag)) for tag in events.Tags()["tensors"]}
        assert tags["sample"] == 2
        assert tags.get("diagnostics/attention") == (2 if row["model"] == "transformer" else None)
        scores = ("second_half_accuracy", "sequence_accuracy", "first_half_loss")
        assert {"Loss/validation", *(f"Validation/{score}" for score in scores)} <= {*tags}


def test_the_report_has_tables_verdicts_samples_and_a_picture(smoke):
    page = (smoke.folder / "sequence_reversal.md").read_text(encoding="utf-8")
    for row in smoke.rows:
        (line,) = (line for line in smoke.stdout.splitlines() if line.startswith(f"| {row['model']} "))
        assert line in page
        for text in (page, smoke.stdout):
            assert f"{row['model']}: The model is causal" in text
            assert "6 letters, a length not trained on:" in text
    height, width, _ = matplotlib.image.imread(smoke.folder / "sequence_reversal.png").shape
    assert width > height > 400
    assert str(smoke.folder / "sequence_reversal.png") in smoke.stdout
    assert f"--logdir {smoke.folder}" in smoke.stdout.splitlines()[-1]


@pytest.mark.slow
def test_to_resume_what_is_half_done_ends_at_the_same_figures(smoke, tmp_path, capsys):
    folder = shutil.copytree(smoke.folder, tmp_path / "half")
    run = folder / "transformer-seed0"
    for part in ("result.json", "model.keras", "checkpoints/latest", "checkpoints/step-00000300.safetensors"):
        (run / part).unlink()
    untouched = {path: path.stat().st_mtime_ns for path in (folder / "lstm-seed0").rglob("*")}
    sequence_reversal.main(["--resume", str(folder)])
    assert {path: path.stat().st_mtime_ns for path in (folder / "lstm-seed0").rglob("*")} == untouched
    assert [*map(without_clocks, read(folder / "sequence_reversal.json"))] == [*map(without_clocks, smoke.rows)]
    assert [*map(without_clocks, read_metrics(run))] == [
        *map(without_clocks, read_metrics(smoke.folder / "transformer-seed0"))
    ]


@pytest.mark.slow
def test_a_transformer_without_its_mask_fails(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        sequence_reversal.main(["--smoke", "--broken-mask", "--log-dir", str(tmp_path)])
    output = capsys.readouterr().out
    assert stop.value.code == 1
    assert "non_causal: The model is not causal, it sees future tokens: its first half loss" in output
    folder = left_in(tmp_path)
    assert "non_causal: The model is not causal, it sees future tokens: its first half loss" in (
        folder / "sequence_reversal.md"
    ).read_text(encoding="utf-8")
    result = read(folder / "non_causal-seed0/result.json")
    assert result["causal"] is result["passed"] is False
    assert result["first_half_loss"] < 0.9 * math.log(4)
    with pytest.raises(AssertionError, match="is not causal"):
        assert_causal(keras.models.load_model(folder / "non_causal-seed0/model.keras"))
    with pytest.raises(SystemExit) as stop:  # also when it is resumed
        sequence_reversal.main(["--resume", str(folder)])
    assert stop.value.code == 1


def test_transformers_with_and_without_mask_differ_in_the_mask_only(randomize):
    config = sequence_reversal.smoke_config(SequenceReversalConfig())
    causal, non_causal = (
        sequence_reversal.build_model(config, "transformer"),
        sequence_reversal.build_model(config, "non_causal"),
    )
    non_causal.set_weights(randomize(causal).get_weights())
    assert non_causal.count_params() == causal.count_params()
    assert_causal(causal, length=10)
    x, _ = config.task.batch(0)
    differs = ~np.isclose(causal(x), non_causal(x), atol=1e-4).all(axis=(0, 2))
    np.testing.assert_array_equal(differs, [*[True] * (x.shape[1] - 1), False])  # the last position has no future
    (masked,), (unmasked,) = attention(causal, x[0].numpy()), attention(non_causal, x[0].numpy())
    future = ~np.tri(x.shape[1], dtype=bool)
    for weights in (masked, unmasked):
        assert weights.shape == (2, x.shape[1], x.shape[1])
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert not masked[:, future].any()
    assert (unmasked[:, future] > 0).all()
    assert attention(sequence_reversal.build_model(config, "lstm"), x[0].numpy()) == []


def sure(ids, size):
    """Logits that leave no doubt about an id."""
    return 50 * tf.one_hot(ids, size)


def metrics_of(logits, x, y):
    return batch_totals(logits, x, y, TASK).metrics


def test_a_perfect_prediction_is_not_causal():
    x, y = TASK.batch(0)
    metrics = metrics_of(sure(y, TASK.vocabulary_size), x, y)
    assert (metrics["second_half_accuracy"], metrics["sequence_accuracy"]) == (1, 1)
    assert metrics["first_half_loss"] == pytest.approx(0, abs=1e-6)
    assert causality_verdict(metrics["first_half_loss"], 6)[0] is False


def test_a_uniform_prediction_of_the_letters_has_a_loss_of_log_a():
    x, y = TASK.batch(0)
    for separator in (-30.0, 0.0, 30.0):
        logits = np.zeros((*y.shape, TASK.vocabulary_size), "float32")
        logits[..., TASK.separator] = separator
        metrics = metrics_of(logits, x, y)
        assert metrics["first_half_loss"] == pytest.approx(math.log(6), rel=1e-6)
        assert causality_verdict(metrics["first_half_loss"], 6)[:2] == (True, True)


def test_only_ids_after_the_separator_are_the_second_half():
    x, y = (ids.numpy() for ids in TASK.batch(0))
    targets = y.copy()
    separators = (x == TASK.separator).argmax(1)
    for row, place in enumerate(separators):
        targets[row, :place] = (targets[row, :place] + 1) % 6  # wrong before it, the separator itself among them
    assert metrics_of(sure(targets, TASK.vocabulary_size), x, y)["second_half_accuracy"] == 1
    row = 5
    targets[row, separators[row]] = (y[row, separators[row]] + 1) % 6
    metrics = metrics_of(sure(targets, TASK.vocabulary_size), x, y)
    assert metrics["sequence_accuracy"] == pytest.approx(1 - 1 / 40)
    assert metrics["second_half_accuracy"] == pytest.approx(1 - 1 / separators.sum())  # L + 1 ids of each row


def test_figures_are_sums_over_counts_whatever_the_batches(randomize):
    model = randomize(SmallLSTMConfig(embedding_dim=4, units=8).build_model(TASK.vocabulary_size))
    scores = Scorer(model, TASK)(range(1, 4), num_sequences=301, seed=9)  # two batches, the second not full
    assert all(part.sequences == 301 for part in scores.values())
    assert [part.first_half_letters / part.sequences for part in scores.values()] == [1, 2, 3]
    total = sum(scores.values(), ReversalTotals())
    assert total.metrics["second_half_accuracy"] == pytest.approx(
        sum(part.second_half_correct for part in scores.values()) / (301 * (2 + 3 + 4))
    )
    assert total.metrics["first_half_loss"] >= math.log(6) - 0.1


def almost(ids, training=False):
    """A causal model of `TASK` that reverses, but is wrong where the id before is the letter 0 or 1."""
    ids = tf.convert_to_tensor(ids)
    place = tf.range(tf.shape(ids)[1])[None]
    separator = tf.argmax(ids == TASK.separator, axis=1, output_type=tf.int32)[:, None]
    source = tf.clip_by_value(2 * separator - 1 - place, 0, tf.shape(ids)[1] - 1)
    guess = tf.gather(ids, source, batch_dims=1)
    guess = tf.where(guess == TASK.start, TASK.end, guess)
    return sure(tf.where((place > separator) & (ids < 2), (guess + 1) % 6, guess), TASK.vocabulary_size)


def test_teacher_forcing_is_right_throughout_exactly_where_greedy_generation_is():
    scorer = Scorer(almost, TASK)
    x, y = dataclasses.replace(TASK.with_length(4), batch_size=200).batch(0)
    behind = slice(5, None)
    forced = (almost(x).numpy().argmax(-1) == y.numpy())[:, behind].all(axis=1)
    generated = (scorer.generate(x.numpy()[:, :6])[:, 1:] == y.numpy()).all(axis=1)
    np.testing.assert_array_equal(generated, forced)
    assert 0.1 < forced.mean() < 0.5
    assert metrics_of(almost(x), x, y)["sequence_accuracy"] == pytest.approx(forced.mean())


@pytest.mark.parametrize(
    "model_config", [SmallTransformerConfig(8, 2, 2, 16, context_length=12), SmallLSTMConfig(8, 16)]
)
def test_generate_is_greedy_generation_by_steps(randomize, model_config):
    model = randomize(model_config.build_model(TASK.vocabulary_size), scale=1.5)
    x, _ = dataclasses.replace(TASK.with_length(5), batch_size=40).batch(3)
    prompts = x.numpy()[:, :7]
    rows, state = prompts, model.get_initial_state(40)
    for t in range(12):
        logits, state = model.step(rows[:, t : t + 1], state)
        if t >= 6:
            rows = np.append(rows, np.argmax(logits, -1)[:, None], axis=1)
    np.testing.assert_array_equal(Scorer(model, TASK).generate(prompts), rows)
    assert len({*rows[:, 7:].flat}) > 2


@pytest.mark.parametrize(("share", "causal", "passed"), [(0.97, False, False), (0.99, True, True), (1.03, True, False)])
def test_the_verdict_leaves_two_percent(share, causal, passed):
    *flags, message = causality_verdict(share * math.log(26), 26)
    assert flags == [causal, passed]
    assert message.startswith("The model is not causal") is not causal
    assert f"{share * math.log(26):.3f}" in message


def test_a_row_is_decoded_to_its_letters():
    assert to_letters([TASK.start, 0, 5, TASK.separator, 5, 0, TASK.end], TASK) == "<af|fa>"


def test_training_validation_and_test_draw_from_seeds_of_their_own():
    seeds = [dataclasses.replace(SequenceReversalConfig(), seed=seed).task.seed for seed in (0, 2**32 - 1)]
    assert (
        len({seed + part for seed in seeds for part in (0, sequence_reversal.VALIDATION, sequence_reversal.TEST)}) == 6
    )
    assert (
        max(seeds) < sequence_reversal.VALIDATION < sequence_reversal.VALIDATION + max(seeds) < sequence_reversal.TEST
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--models nope", "nope"),
        ("--models", "--models"),
        ("--alphabet-size 1", "--alphabet-size 1"),
        ("--alphabet-size 53", "--alphabet-size 53"),
        ("--max-length 0", "--max-length 0"),
        ("--steps 0", "--steps 0"),
        ("--batch-size -1", "--batch-size -1"),
        ("--validation-sequences 0", "--validation-sequences 0"),
        ("--test-sequences 0", "--test-sequences 0"),
        ("--seed -1", "--seed -1"),
        ("--frobnicate 1", "--frobnicate"),
        ("--transformer.context-length 20", "--transformer.context-length 20"),
        ("--transformer.num-heads 5", "num_heads=5"),
        ("--lstm.units 0", "units=0"),
        ("--train.learning-rate -1", "learning_rate=-1.0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(sequence_reversal.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.sequence_reversal: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
