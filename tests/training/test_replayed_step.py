"""Steps that torch replays are Keras's own; what does more than compute on tensors is left to Keras."""

import contextlib
import dataclasses
import gc

import keras
import numpy as np
import pytest

from keras_seq import kernels
from keras_seq.models import LANGUAGE_MODELS, LSTMConfig
from keras_seq.training import TrainConfig, compile_model, stateful_training_model
from tests.models.test_language_model import SMALL

if keras.backend.backend() != "torch":
    pytest.skip("only torch replays steps", allow_module_level=True)

import torch

from keras_seq.kernels.torch import replayed_step

pytestmark = pytest.mark.any_backend
V, B, T = 7, 3, 5
RANDOM = np.random.default_rng(0)
BATCHES = [tuple(RANDOM.integers(V, size=(2, B, T)).astype("int32")) for _ in range(4)]
LSTM = LSTMConfig(embedding_dim=4, units=6)
TRAIN = TrainConfig("adamw", 0.01, warmup_steps=0)


@pytest.fixture(autouse=True)
def records_at_once(monkeypatch):
    monkeypatch.setattr(replayed_step, "STEPS_BEFORE", 1)


def trained(model, batches=BATCHES, train=TRAIN):
    """Losses and final variables of a training; the model is compiled if `train` is given."""
    if train is not None:
        compile_model(model, train, total_steps=20)
    losses = [model.train_on_batch(*batch) for batch in batches]
    return losses, [keras.ops.convert_to_numpy(v).copy() for v in (*model.variables, *model.optimizer.variables)]


def records(model):
    """What was recorded for each shape, None for what could not be."""
    return [*model.train_step._records.values()]


def check_same(make, batches=BATCHES, train=TRAIN):
    """Train a model and one that Keras trains by itself; return the records."""
    results = []
    for is_replayed in (True, False):
        keras.utils.set_random_seed(1)
        model = make()
        compile_model(model, train, total_steps=20)
        if is_replayed:
            replayed = model
        else:
            del model.train_step
        results.append(trained(model, batches, train=None))
    (losses, variables), (expected, expected_variables) = results
    assert losses == expected
    assert len({*losses}) == len(losses)
    for a, b in zip(variables, expected_variables, strict=True):
        np.testing.assert_array_equal(a, b)
    return records(replayed)


def without_dropout(config):
    names = {field.name for field in dataclasses.fields(config)} & {"dropout", "recurrent_dropout"}
    return dataclasses.replace(config, **dict.fromkeys(names, 0.0))


def ids_input():
    return keras.Input((T,), dtype="int32")


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_every_model_trains_the_same_and_most_are_recorded(name):
    (record,) = check_same(lambda: without_dropout(SMALL[name]).build_model(V))
    # Keras splits tensors at positions that it reads from a tensor
    assert (record is None) == (name in ("mamba2", "gated_deltanet"))


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "muon"},
        {"precision": "bfloat16"},
        {"use_ema": True, "gradient_accumulation_steps": 2},
        {"optimizer": "sgd"},
    ],
    ids=str,
)
def test_options_of_training_are_kept(options):
    dtype = "mixed_bfloat16" if "precision" in options else None
    (record,) = check_same(
        lambda: without_dropout(SMALL["transformer"]).build_model(V, dtype=dtype),
        train=dataclasses.replace(TRAIN, **options),
    )
    assert record is not None


def test_a_state_is_carried_and_reset():
    resets = [np.array(rows) for rows in ([True] * 3, [False] * 3, [False, True, False], [False] * 3)]
    batches = [((x, reset), y) for (x, y), reset in zip(BATCHES, resets, strict=True)]
    (record,) = check_same(lambda: stateful_training_model(LSTM.build_model(V), B, T), batches)
    assert record is not None


def test_every_shape_is_recorded_by_itself_and_weights_of_samples_count(monkeypatch):
    weights = RANDOM.random(size=(B, T)).astype("float32")
    short = [(x[:, :3], y[:, :3]) for x, y in BATCHES]
    batches = [*BATCHES, *short, *((x, y, weights) for x, y in BATCHES)]
    assert len(check_same(lambda: LSTM.build_model(V), batches)) == 3
    monkeypatch.setattr(replayed_step, "MAX_RECORDS", 1)
    assert len(check_same(lambda: LSTM.build_model(V), batches)) == 1


def test_random_numbers_are_drawn_anew():
    config = dataclasses.replace(LSTM, num_layers=2, dropout=0.3)
    (record,) = check_same(lambda: config.build_model(V))
    assert record is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: SMALL["transformer"].build_model(V),  # dropout of attention weights
        lambda: keras.Sequential([ids_input(), LSTM.build_model(V), keras.layers.Dropout(0.5, seed=3)]),
    ],
)
def test_random_numbers_of_a_seed_are_left_to_keras(make):
    assert check_same(make) == [None]


def test_what_has_a_mask_is_left_to_keras():
    def make():
        ids = ids_input()
        hidden = keras.layers.Embedding(V, 4, mask_zero=True)(ids)
        return keras.Model(ids, keras.layers.Dense(V)(hidden))

    assert check_same(make) == [None]


class Foreign(keras.layers.Layer):
    def call(self, x):
        return x * float(keras.ops.max(x))  # a number that a record would keep


@pytest.mark.parametrize("regularized", ["activity_regularizer", "kernel_regularizer"])
def test_losses_of_regularizers_count(regularized):
    def make():
        dense = keras.layers.Dense(V, **{regularized: keras.regularizers.L2(1.0)})
        return keras.Sequential([ids_input(), keras.layers.Embedding(V, 4), dense])

    (record,) = check_same(make)
    assert record


def test_a_new_head_is_trained():
    def train(is_replayed):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([ids_input(), keras.layers.Embedding(V, 4), keras.layers.Dense(V)])
        compile_model(model, TRAIN, total_steps=20)
        if not is_replayed:
            del model.train_step
        trained(model, train=None)
        model.pop()
        model.add(keras.layers.Dense(V))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return trained(model, train=None)[0]

    assert train(True) == train(False)


def test_layers_of_others_are_left_to_keras():
    model = keras.Sequential([keras.Input((2,)), Foreign(), keras.layers.Dense(1)])
    compile_model(model, TRAIN, 10, loss=keras.losses.MeanSquaredError())
    assert "train_step" not in vars(model)


def test_what_a_layer_reads_of_a_value_is_not_kept(monkeypatch):
    """Were a layer of ours to do so."""
    monkeypatch.setattr(replayed_step, "PACKAGES", (Foreign.__module__.split(".")[0], "keras"))
    model = keras.Sequential([keras.Input((2,)), Foreign(), keras.layers.Dense(1)])
    compile_model(model, TRAIN, 10, loss=keras.losses.MeanSquaredError())
    for _ in range(3):
        model.train_on_batch(np.ones((2, 2)), np.ones((2, 1)))
    assert records(model) == [None]


def changed(change, is_replayed):
    """Losses before and after a change of a model that goes on training, and its last loss as `evaluate` has it."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([ids_input(), keras.layers.Embedding(V, 4), keras.layers.Dense(V)])
    compile_model(model, TRAIN, total_steps=20)
    if not is_replayed:
        del model.train_step
    losses = trained(model, train=None)[0]
    change(model)
    losses += trained(model, train=None)[0]
    return losses, model.evaluate(*BATCHES[0], verbose=0), model


@pytest.mark.parametrize("layer", [0, 1])
def test_a_matrix_that_is_quantized_is_trained_no_more(layer):
    *expected, _ = changed(lambda model: model.layers[layer].quantize("int8"), is_replayed=False)
    *got, _ = changed(lambda model: model.layers[layer].quantize("int8"), is_replayed=True)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5)


def test_hooks_of_torch_are_called():
    calls = []

    def add_hooks(model):
        model.layers[0].embeddings.value.register_hook(lambda gradient: 0 * gradient)
        model.layers[1].register_forward_hook(lambda *args: calls.append(args))

    *_, model = changed(add_hooks, is_replayed=True)
    assert len(calls) == len(BATCHES) + 1  # and that of `evaluate`
    assert not model.layers[0].embeddings.value.grad.any()


HOOKS = {
    "weight": lambda layer, call: layer.kernel.value.register_hook(call),
    "accumulated": lambda layer, call: layer.kernel.value.register_post_accumulate_grad_hook(call),
    "forward": lambda layer, call: layer.register_forward_hook(call),
    "before forward": lambda layer, call: layer.register_forward_pre_hook(call),
    "backward": lambda layer, call: layer.register_full_backward_hook(call),
    "before backward": lambda layer, call: layer.register_full_backward_pre_hook(call),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_of_every_kind_are_called_at_every_step(kind):
    calls = []
    changed(lambda model: HOOKS[kind](model.layers[1], lambda *args: calls.append(kind)), is_replayed=True)
    assert len(calls) >= len(BATCHES)


def test_there_is_no_gradient_of_an_earlier_step():
    *_, model = changed(lambda model: None, is_replayed=True)
    assert any(record is not None for record in records(model))
    assert [variable.value.grad for variable in model.trainable_variables] == [None] * 3


def test_another_loss_optimizer_or_set_of_weights_is_recorded_anew():
    model = without_dropout(SMALL["gpt2"]).build_model(V)
    trained(model)
    model.embedding.trainable = False
    frozen = keras.ops.convert_to_numpy(model.embedding.embeddings).copy()
    trained(model, train=None)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model.embedding.embeddings), frozen)
    model.compile("sgd", keras.losses.MeanSquaredError())
    y = RANDOM.normal(size=(B, T, V)).astype("float32")
    got = [model.train_on_batch(BATCHES[0][0], y) for _ in range(3)]
    expected = float(np.mean((keras.ops.convert_to_numpy(model(BATCHES[0][0])) - y) ** 2))
    assert got[0] > got[1] > got[2] > expected


@pytest.mark.parametrize("kind", ["variable", "tensor", "teacher"])
def test_what_a_loss_reads_besides_the_model_may_change(kind):
    beta, tensor, teacher = keras.Variable(0.0), torch.zeros(()), keras.layers.Dense(1)
    teacher.build((None, 3))

    def loss(y, y_pred):
        factor = {"variable": beta, "tensor": tensor, "teacher": keras.ops.sum(teacher.kernel)}[kind]
        return (1 - factor) * keras.ops.square(y - y_pred)  # 1 - factor depends on no input of the step

    def losses(is_replayed):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        with contextlib.nullcontext() if is_replayed else kernels.disabled():
            compile_model(model, TRAIN, total_steps=20, loss=loss)
        for share in np.linspace(0, 1, 6):
            beta.assign(share)
            tensor.fill_(share)
            teacher.kernel.assign(np.full((3, 1), share / 3))
            yield model.train_on_batch(np.ones((4, 3)), np.ones((4, 1)))
            model.reset_metrics()
        assert not is_replayed or None not in records(model)

    replayed = [*losses(is_replayed=True)]
    np.testing.assert_allclose(replayed, [*losses(is_replayed=False)], rtol=1e-5, atol=1e-6)
    assert replayed[0] > 0
    assert replayed[-1] == pytest.approx(0, abs=1e-6)


def test_a_training_step_of_the_users_is_not_replaced():
    model, calls = LSTM.build_model(V), []
    model.train_step = lambda data: calls.append(data) or type(model).train_step(model, data)
    trained(model)
    assert len(calls) == len(BATCHES)


def test_without_kernels_and_where_it_makes_no_sense_keras_trains():
    for train in (dataclasses.replace(TRAIN, precision="float16"), dataclasses.replace(TRAIN, rematerialization=True)):
        model = without_dropout(SMALL["transformer"]).build_model(V)
        compile_model(model, train, 10)
        assert "train_step" not in vars(model)
    with kernels.disabled():
        model = LSTM.build_model(V)
        compile_model(model, TRAIN, 10)
    assert "train_step" not in vars(model)


def test_metrics_are_those_of_keras():
    def histories(metrics):
        for is_replayed in (True, False):
            keras.utils.set_random_seed(1)
            model = keras.Sequential([ids_input(), keras.layers.Embedding(V, 4), keras.layers.Dense(V)])
            compile_model(model, TRAIN, total_steps=20)
            if metrics:
                model.compile(model.optimizer, model.loss, metrics=metrics)
            if not is_replayed:
                del model.train_step
            yield model.fit(*map(np.concatenate, zip(*BATCHES, strict=True)), B, 2, verbose=0).history

    for metrics in ([], ["accuracy"]):
        got, expected = histories(metrics)
        assert got == expected
        assert len(got) == 1 + len(metrics)


def test_a_model_is_saved_and_copied_as_any_other(tmp_path):
    model = LSTM.build_model(V)
    trained(model)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(*(keras.ops.convert_to_numpy(m(BATCHES[0][0])) for m in (model, copy)))


def test_a_loss_that_is_not_finite_is_noticed_in_a_replay():
    model = without_dropout(SMALL["gpt2"]).build_model(V)
    trained(model)
    model.embedding.embeddings.assign(np.full(model.embedding.embeddings.shape, np.inf))
    before = keras.ops.convert_to_numpy(model.head.kernel if model.head else model.blocks[-1].variables[0]).copy()
    model.train_on_batch(*BATCHES[0])
    assert int(model.optimizer.first_nonfinite_step) == len(BATCHES)
    after = keras.ops.convert_to_numpy(model.head.kernel if model.head else model.blocks[-1].variables[0])
    np.testing.assert_array_equal(before, after)


def test_a_step_leaves_nothing_for_the_garbage_collector():
    model = LSTM.build_model(V)
    compile_model(model, TRAIN, total_steps=20)
    for batch in BATCHES:
        model.train_step(batch)
    assert records(model) != [None]
    gc.collect()
    gc.disable()
    try:
        for batch in BATCHES:
            model.train_step(batch)
        assert gc.collect() == 0
    finally:
        gc.enable()
