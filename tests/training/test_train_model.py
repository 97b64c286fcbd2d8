"""A whole run of any Keras model with any validation, and of a language model."""

import dataclasses
import json
import shutil
import time

import keras
import numpy as np
import pytest

from keras_seq import training
from keras_seq.data import ArrayBatches, RandomWindows, StatefulWindows
from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.streaming import sample_windows
from keras_seq.models import GRUConfig, TransformerConfig
from keras_seq.saving.keras_file import load_untrusted_model
from keras_seq.tracking import Summaries
from keras_seq.training.checkpoints import read_arrays
from keras_seq.training.language_model import check_sample
from tests.conftest import functions_run_eagerly

X = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")
CONSTANT = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=1, decay_rate=1.0)
TRAIN = training.TrainConfig("adam", 0.1, warmup_steps=0, log_every=2, validate_every=2, checkpoint_every=2)
eagerly = pytest.mark.usefixtures("eagerly")  # the first test compiles; what the others hold is the same without


def regress(folder, steps=6, train=TRAIN, **options):
    """Train a linear regression; its validation is its error on all rows."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

    def validate():
        error = float(np.mean((np.asarray(model(X)) - Y) ** 2))
        return Summaries({"val_loss": error, "group/other": 1.0}, {"first": f"{error:.3f}"})

    options = {"loss": keras.losses.MeanSquaredError(), "schedule": CONSTANT, "validate_fn": validate, **options}
    dataset = ArrayBatches((X, Y), batch_size=4).dataset
    return training.train_model(folder, model, dataset, 4, steps, train, config={"seed": 0}, **options), model


def weights(model):
    return [weight.numpy().tolist() for weight in model.weights]


def test_any_model_leaves_a_whole_run(tmp_path):
    result, model = regress(tmp_path / "linear", characters_per_token=2.0, finish=lambda s: {"scalars": len(s.scalars)})
    names = {"config.json", "metrics.jsonl", "model.keras", "result.json", "checkpoints"}
    assert names <= {path.name for path in (tmp_path / "linear").iterdir()}
    assert json.loads((tmp_path / "linear/config.json").read_text(encoding="utf-8"))["seed"] == 0
    assert weights(keras.models.load_model(tmp_path / "linear/model.keras")) == weights(model)
    lines = training.read_metrics(tmp_path / "linear", "validation")
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert lines[-1]["val_loss"] == result["val_loss"] < lines[0]["val_loss"]
    assert result["first"] == f"{result['val_loss']:.3f}"
    assert "group/other" not in result  # it is a diagnostic
    assert (result["parameters"], result["train_tokens"], result["scalars"]) == (4, 24, 2)
    assert result["train_loss_per_character"] == result["train_loss"] / 2
    assert training.load_result(tmp_path / "linear") == result


@eagerly
def test_a_run_that_goes_on_is_the_run_that_never_stopped(tmp_path):
    whole, model = regress(tmp_path / "whole")
    regress(tmp_path / "parts", steps=4)
    (tmp_path / "parts/result.json").unlink()
    parts, resumed = regress(tmp_path / "parts")
    assert weights(resumed) == weights(model)
    clocks = dict.fromkeys(("train_seconds", "other_seconds", "tokens_per_second"), 0)
    assert {**parts, **clocks} == {**whole, **clocks}


@eagerly
def test_the_seconds_of_every_part_add_up_over_a_resume(tmp_path, monkeypatch):
    class Step(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 1.0

    now, seconds = [0.0], {"validation": 2.0, "diagnostics": 3.0, "checkpoints": 5.0, "final_validation": 7.0}

    def taking(part, function):
        def call(*arguments):
            now[0] += seconds[part]
            return function(*arguments)

        return call

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(training.checkpoints, "save", taking("checkpoints", training.checkpoints.save))
    options = {
        "validate_fn": taking("validation", lambda: Summaries({"val_loss": 1.0})),
        "diagnostics": [taking("diagnostics", lambda: Summaries({}))],
        "final_validate_fn": taking("final_validation", lambda: Summaries({"val_loss": 1.0})),
        "callbacks": [Step()],
    }
    whole, _ = regress(tmp_path / "whole", **options)
    assert whole["other_seconds"] == {**seconds, "validation": 6.0, "diagnostics": 9.0, "checkpoints": 15.0}
    regress(tmp_path / "parts", steps=4, **options)
    (tmp_path / "parts/result.json").unlink()
    parts, _ = regress(tmp_path / "parts", **options)  # what followed the last point before the stop was not logged
    assert parts["other_seconds"] == {**seconds, "validation": 4.0, "diagnostics": 6.0, "checkpoints": 10.0}
    assert parts["train_seconds"] == whole["train_seconds"] == 3.0


@eagerly
def test_a_kill_between_the_model_and_its_result_is_repaired_by_resuming(tmp_path, monkeypatch):
    def kill(folder, result):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.trainer, "write_result", kill)
        with pytest.raises(KeyboardInterrupt):
            regress(tmp_path)
    assert (tmp_path / "model.keras").exists()
    assert training.load_result(tmp_path) is None
    whole, model = regress(tmp_path)
    assert training.load_result(tmp_path) == whole
    assert weights(keras.models.load_model(tmp_path / "model.keras")) == weights(model)


TRANSFORMER = TransformerConfig(4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=5)


@pytest.mark.parametrize(
    ("config", "windows_class", "carries"),
    [
        (GRUConfig(2, 3), StatefulWindows, True),
        (GRUConfig(2, 3), RandomWindows, False),
        (TRANSFORMER, StatefulWindows, False),
    ],
)
def test_the_state_is_carried_where_rows_go_on_and_the_state_has_no_length(config, windows_class, carries):
    model, windows = config.build_model(7), windows_class(np.arange(60) % 7, batch_size=2, sequence_length=5)
    training_model, dataset_fn = training.fit_inputs(model, windows)
    (inputs, _), *_ = dataset_fn(0, 1)
    assert carries == isinstance(inputs, tuple) == (training_model is not model)
    assert {*map(id, model.trainable_variables)} == {*map(id, training_model.trainable_variables)}
    logits = training_model(list(inputs) if carries else inputs)
    np.testing.assert_allclose(logits, model(inputs[0] if carries else inputs), atol=1e-6)  # a first step is no other


@eagerly
@pytest.mark.any_backend
def test_a_model_that_is_compiled_with_metrics_goes_on(tmp_path):
    def run(folder, steps, optimizer):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile(optimizer, "mse", metrics=["mae"])
        arguments = ArrayBatches((X, Y), batch_size=4).dataset, 4, steps, TRAIN, lambda: Summaries({"val_loss": 1.0})
        training.train_model(folder, model, *arguments, config={})
        return [keras.ops.convert_to_numpy(v).tolist() for v in (*model.variables, *model.optimizer.variables)]

    whole = run(tmp_path / "whole", 6, training.Adam(0.1))
    run(tmp_path / "parts", 4, training.Adam(0.1))
    assert run(tmp_path / "parts", 6, training.Adam(0.1)) == whole
    with pytest.raises(ValueError, match=r"sequential\S* is compiled with another Adam; expected one of keras_seq"):
        run(tmp_path / "other", 4, keras.optimizers.Adam(0.1))
    assert not (tmp_path / "other").exists()


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "option", [{"loss": keras.losses.MeanSquaredError()}, {"schedule": training.InverseSqrtDecay(8)}]
)
def test_a_loss_or_schedule_beside_those_of_a_compiled_model_is_refused(tmp_path, option):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(training.Adam(0.1), "mae")
    arguments = ArrayBatches((X, Y), batch_size=4).dataset, 4, 4, TRAIN, lambda: Summaries({"val_loss": 1.0})
    with pytest.raises(ValueError, match=r"sequential\S* is compiled; expected its loss and schedule in"):
        training.train_model(tmp_path / "run", model, *arguments, **option)
    assert not (tmp_path / "run").exists()


@eagerly
@pytest.mark.any_backend
def test_a_validation_by_evaluate_leaves_the_training_loss_as_it_is(tmp_path):
    """Keras has one loss for both."""
    x = y = np.zeros((16, 1), "float32")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])

    def validate():
        return Summaries({"val_loss": model.evaluate(x, y + 10, verbose=0)})

    arguments = ArrayBatches((x, y), 4).dataset, 4, 6, dataclasses.replace(TRAIN, validate_every=3), validate
    result = training.train_model(tmp_path, model, *arguments, loss=keras.losses.MeanSquaredError())
    assert [line["loss"] for line in training.read_metrics(tmp_path, "train")] == [0, 0, 0]
    assert (result["train_loss"], result["val_loss"]) == (0, 100)


class StopsAt(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = int(self.model.optimizer.step) >= self.step


@eagerly
@pytest.mark.parametrize(("log_every", "validate_every"), [(2, 2), (3, 3), (9, 3), (3, 9), (9, 9)])
def test_where_a_callback_stops_the_run_is_logged_validated_and_saved(tmp_path, log_every, validate_every):
    train = dataclasses.replace(TRAIN, checkpoint_every=5, log_every=log_every, validate_every=validate_every)
    result, model = regress(tmp_path / "run", train=train, callbacks=[StopsAt(3)])
    assert result["train_tokens"] == 12
    for split, every in (("train", log_every), ("validation", validate_every)):
        steps = [line["step"] for line in training.read_metrics(tmp_path / "run", split)]
        assert steps == [*range(every, 3, every), 3]
    assert (tmp_path / "run/checkpoints/step-00000003.safetensors").is_file()
    error = np.mean((keras.ops.convert_to_numpy(model(X)) - Y) ** 2)
    assert result["val_loss"] == pytest.approx(float(error), rel=1e-5)
    best = min(training.read_metrics(tmp_path / "run", "validation"), key=lambda line: line["val_loss"])
    metadata, _ = read_arrays(tmp_path / "run/checkpoints/best.safetensors", 1 << 20)
    assert int(metadata["step"]) == best["step"]


@eagerly
def test_a_stop_at_a_step_that_was_logged_and_validated_and_is_not_the_best_is_saved_too(tmp_path):
    train = dataclasses.replace(TRAIN, checkpoint_every=5, log_every=1, validate_every=1)
    constant = lambda: Summaries({"val_loss": 1.0})  # noqa: E731
    regress(tmp_path / "run", train=train, callbacks=[StopsAt(3)], validate_fn=constant)
    assert (tmp_path / "run/checkpoints/step-00000003.safetensors").is_file()


@eagerly
def test_a_training_that_a_callback_has_stopped_goes_on_with_the_weights_and_not_their_average(tmp_path):
    train = dataclasses.replace(TRAIN, use_ema=True, ema_momentum=0.9)
    whole = regress(tmp_path / "whole", train=train)
    regress(tmp_path / "parts", train=train, callbacks=[StopsAt(3)])
    parts = regress(tmp_path / "parts", train=train)
    assert parts[0]["train_loss"] == whole[0]["train_loss"]
    assert weights(parts[1]) == weights(whole[1])


@eagerly
def test_what_is_compiled_after_a_training_is_what_the_next_one_trains(tmp_path):
    _, model = regress(tmp_path / "first", steps=2)
    model.compile(training.Adam(0.5), "mae")
    arguments = ArrayBatches((X, Y), 4).dataset, 4, 2, TRAIN, lambda: Summaries({"val_loss": 1.0})
    training.train_model(tmp_path / "second", model, *arguments)
    (line,) = training.read_metrics(tmp_path / "second", "train")
    assert (model.loss, line["learning_rate"]) == ("mae", 0.5)


LENGTH, PART = 5, 41


@pytest.fixture(scope="module")
def capped_run(tiny_run, tmp_path_factory):
    """The folder of a run whose validation text is longer than what is scored during training, and its result."""
    folder = tmp_path_factory.mktemp("capped") / "lstm-seed0"
    with functions_run_eagerly():
        return folder, tiny_run(folder, validation_characters=PART)


@eagerly
def test_the_curve_is_of_a_sample_of_the_text_and_the_final_scores_are_of_all_of_it(capped_run, ids):
    (folder, result), ids = capped_run, ids[120:]
    evaluator = Evaluator(load_untrusted_model(folder / "model.keras"))
    (point,) = training.read_metrics(folder, "validation")
    sample = sample_windows(ids, LENGTH, PART // LENGTH)
    assert sample.tokens == 40 < len(ids)
    assert point["val_loss_sample"] == pytest.approx(evaluator.chunked_loss(ids, LENGTH, sample).mean, rel=1e-6)
    streaming = evaluator.stretch_token_losses(ids, sample).mean()
    assert point["val_loss_streaming_sample"] == pytest.approx(streaming, rel=1e-6)
    assert result["val_loss"] == pytest.approx(evaluator.chunked_loss(ids, LENGTH).mean, rel=1e-6)
    assert result["val_loss_streaming"] == pytest.approx(evaluator.streaming_loss(ids).mean, rel=1e-6)
    assert not any(key in point for key in result if key.startswith("val_"))
    assert not any(key.endswith("_sample") for key in result)
    assert np.load(folder / "val_token_losses.npy").shape == ((len(ids) - 1) // LENGTH, LENGTH)


def test_a_part_that_makes_no_window_is_refused_before_any_work(tiny_run, tmp_path):
    with pytest.raises(ValueError, match=r"4 characters .* at least 6, .*--train.validation-characters"):
        tiny_run(tmp_path, validation_characters=LENGTH - 1)
    assert not any(tmp_path.iterdir())


def test_a_shorter_text_is_scored_whole():
    train = training.TrainConfig(validation_characters=4)
    assert [train.validated_characters(size) for size in (6, 3)] == [4, 3]
    assert training.TrainConfig(validation_characters=None).validated_characters(6, min_characters=5) == 6
    with pytest.raises(ValueError, match=r"--train.validation-characters 4: expected at least 5"):
        train.validated_characters(6, min_characters=5)


def test_a_last_validation_that_chance_does_not_explain_is_named():
    losses = np.random.default_rng(0).normal(2, 0.5, size=(400, 8)).clip(0)
    sample = sample_windows(np.arange(3201) % 7, 8, 40)
    drawn = losses[sample.window_starts // 8].mean()
    check_sample(sample, drawn, losses)
    with pytest.warns(UserWarning, match=r"The last val_loss_sample is 1\.200, and val_loss, .* is 1\.986: by chance"):
        check_sample(sample, 1.2, losses)
    with pytest.warns(UserWarning, match="is nan"):
        check_sample(sample, float("nan"), losses)


@eagerly
def test_a_run_that_was_validated_on_another_part_is_refused(finished_run, capped_run, tiny_run, tmp_path):
    for (folder, _), after in ((finished_run, PART), (capped_run, None)):
        run = shutil.copytree(folder, tmp_path / str(after))
        (run / "result.json").unlink()
        config = (run / "config.json").read_bytes()
        with pytest.raises(training.CheckpointError, match=r"was validated by val_loss|another config"):
            tiny_run(run, validation_characters=after)
        assert (run / "config.json").read_bytes() == config


@eagerly
@pytest.mark.parametrize(
    ("name", "optimizer", "rate"),
    [
        pytest.param("lstm", "muon", 1e30, marks=pytest.mark.rare),
        ("transformer", "sgd", 1e30),
        ("lstm", "adamw", 1e36),
    ],
)
def test_a_training_that_diverged_is_said_in_one_sentence(tiny_run, tmp_path, name, optimizer, rate):
    with pytest.raises(training.TrainingDiverged, match="training has diverged"):
        tiny_run(tmp_path, name, optimizer=optimizer, learning_rate=rate, warmup_steps=0)
