import itertools
import types

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.training import AdamW, InverseSqrtDecay, Muon, NorMuon, TrainConfig, WarmupLinearDecay
from keras_seq.training.muon import muon_blocks, polar_express, wide_and_normalized
from keras_seq.training.optimizers import OPTIMIZERS
from keras_seq.training.tensor_lists import add_all
from tests.conftest import often

pytestmark = pytest.mark.any_backend
RATE = 0.05
OPTIONS = {  # of each optimizer, none of them its default
    "sgd": {"momentum": 0.8, "nesterov": False},
    "adagrad": {"initial_accumulator_value": 0.2, "epsilon": 1e-6},
    "rmsprop": {"rho": 0.8, "momentum": 0.1, "epsilon": 1e-6},
    "adam": {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-6},
    "adamw": {"beta_1": 0.8, "epsilon": 1e-6, "weight_decay": 0.1},
    "lion": {"beta_1": 0.8, "beta_2": 0.95},
    "muon": {
        "adam_beta_1": 0.8,
        "epsilon": 1e-6,
        "adam_lr_ratio": 0.3,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "adam_beta_2": 0.95,
        "ns_steps": 2,
        "iteration_dtype": "bfloat16",
    },
    "normuon": {"momentum": 0.9, "neuron_beta_2": 0.8},
}


@pytest.fixture
def variables(randomize):
    """Tall, wide and blocked hidden matrices, and one weight of each kind that AdamW is to move, by name."""
    made = {
        "tall": keras.layers.Dense(3, name="tall"),
        "wide": keras.layers.Dense(7, use_bias=False, name="wide"),
        "headless": keras.layers.Dense(4, use_bias=False, name="headless"),
        "lstm": layers.LSTM(3, name="lstm", return_sequences=True),
        "head": keras.layers.Dense(5, name="head"),
    }
    for name, layer in made.items():
        layer.build((None, None, 6) if name in ("tall", "lstm") else (None, None, 3))
    made["embedding"] = keras.layers.Embedding(9, 4, name="embedding")
    made["embedding"].build()
    for seed, layer in enumerate(made.values()):
        randomize(layer, seed)
    return {f"{name}/{v.name}": v for name, layer in made.items() for v in layer.trainable_variables}


HIDDEN = {"tall/kernel", "wide/kernel", "headless/kernel", "lstm/kernel", "lstm/recurrent_kernel"}


def random_gradients(variables, steps, scale=1.0):
    random = np.random.default_rng(7)
    return [{name: random.normal(scale=scale, size=v.shape) for name, v in variables.items()} for _ in range(steps)]


def apply(optimizer, variables, gradients):
    optimizer.apply([ops.array(g, "float32") for g in gradients.values()], list(variables.values()))


def numpy(variables):
    return {name: ops.convert_to_numpy(v).astype("float64") for name, v in variables.items()}


POLYNOMIALS = (  # Amsel et al., 2025, Algorithm 1
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
)


def reference_polar_express(x, steps):
    """The published iteration on the singular values of one matrix, the norm of whose x x^T is made 1."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / (s**4).sum() ** 0.25
    for a, b, c in POLYNOMIALS[:steps]:
        s = a * s / 1.01 + b * (s / 1.01) ** 3 + c * (s / 1.01) ** 5
    return (u * s) @ v


def muon(weight, gradients, blocks=1, rate=RATE, momentum=0.95, weight_decay=0.0, ns_steps=3, neuron_beta_2=None):
    """Block by block: heavy ball, looked ahead (Nesterov), made orthogonal, scaled by sqrt(max(1, columns / rows)).

    With `neuron_beta_2` columns are divided by the root of their mean square over time (NorMuon, Algorithm 1), and the
    result is as long as before.
    """
    pieces = []
    for block, *pushes in zip(*(np.split(a, blocks, axis=1) for a in (weight, *gradients)), strict=True):
        velocity, neurons = np.zeros_like(block), 0.0
        for push in pushes:
            velocity = momentum * velocity + push
            direction = reference_polar_express(push + momentum * velocity, ns_steps)
            if neuron_beta_2 is not None:
                neurons = neuron_beta_2 * neurons + (1 - neuron_beta_2) * (direction**2).mean(axis=0)
                normal = direction / np.sqrt(neurons)
                direction = normal * np.linalg.norm(direction) / np.linalg.norm(normal)
            step = direction * max(1, block.shape[1] / block.shape[0]) ** 0.5
            block = block - rate * weight_decay * block - rate * step
        pieces.append(block)
    return np.concatenate(pieces, axis=1)


def adam(weight, gradients, rate, adam_beta_1=0.9, adam_beta_2=0.99, epsilon=1e-8, weight_decay=0.0):
    """Kingma & Ba (2015) with decoupled decay (Loshchilov & Hutter, 2019)."""
    mean = square = 0.0
    for t, gradient in enumerate(gradients, 1):
        mean = adam_beta_1 * mean + (1 - adam_beta_1) * gradient
        square = adam_beta_2 * square + (1 - adam_beta_2) * gradient**2
        weight = weight - weight_decay * weight
        weight = weight - rate * (mean / (1 - adam_beta_1**t)) / (np.sqrt(square / (1 - adam_beta_2**t)) + epsilon)
    return weight


def sgd(weight, gradients):
    """Nesterov's momentum as Sutskever et al. (2013) have it."""
    velocity = 0.0
    for gradient in gradients:
        velocity = 0.9 * velocity - RATE * gradient
        weight = weight + 0.9 * velocity - RATE * gradient
    return weight


def adagrad(weight, gradients):
    """Duchi et al. (2011); in Keras the sum begins at 0.1."""
    for t, gradient in enumerate(gradients, 1):
        weight = weight - RATE * gradient / np.sqrt(0.1 + sum(g**2 for g in gradients[:t]) + 1e-7)
    return weight


def rmsprop(weight, gradients):
    """Tieleman & Hinton (2012): the mean square begins at zero and has no correction for it."""
    square = 0.0
    for gradient in gradients:
        square = 0.9 * square + 0.1 * gradient**2
        weight = weight - RATE * gradient / np.sqrt(square + 1e-7)
    return weight


def lion(weight, gradients):
    """Chen et al. (2023): the sign of one blend is the step, another blend is kept."""
    kept = 0.0
    for gradient in gradients:
        weight = weight - RATE * np.sign(0.9 * kept + 0.1 * gradient)
        kept = 0.99 * kept + 0.01 * gradient
    return weight


# what all optimizers have from one class: of one moment, of two, and Muon, which has its own
UNLIKE = ("sgd", "adamw", "muon")
unlike_kinds = often("kind", OPTIMIZERS, UNLIKE)
ORACLES = {  # name of the optimizer -> (name of the weight, its value, its gradients) -> its value afterwards
    "sgd": lambda _, weight, gradients: sgd(weight, gradients),
    "adagrad": lambda _, weight, gradients: adagrad(weight, gradients),
    "rmsprop": lambda _, weight, gradients: rmsprop(weight, gradients),
    "adam": lambda _, weight, gradients: adam(weight, gradients, RATE, adam_beta_2=0.999),
    "adamw": lambda _, weight, gradients: adam(weight, gradients, RATE, adam_beta_2=0.999, weight_decay=0.004 * RATE),
    "lion": lambda _, weight, gradients: lion(weight, gradients),
    "muon": lambda name, weight, gradients: (
        muon(weight, gradients, blocks=4 if name.startswith("lstm") else 1)
        if name in HIDDEN
        else adam(weight, gradients, 0.2 * RATE)
    ),
    "normuon": lambda name, weight, gradients: (
        muon(weight, gradients, blocks=4 if name.startswith("lstm") else 1, neuron_beta_2=0.95)
        if name in HIDDEN
        else adam(weight, gradients, 0.2 * RATE)
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_steps_one_of_them_clipped_are_those_of_the_paper(name, variables):
    # away from zero, where the papers' epsilons differ from Keras's
    long, short = ({key: g + 0.3 * np.sign(g) for key, g in step.items()} for step in random_gradients(variables, 2))
    short = {key: g / 4 for key, g in short.items()}
    clip = np.sqrt(sum((g**2).sum() for g in long.values())) / 2
    momentum = {"momentum": 0.9, "nesterov": True} if name == "sgd" else {}
    start, optimizer = numpy(variables), OPTIMIZERS[name](RATE, global_clipnorm=clip, **momentum)
    for step in (long, short):
        apply(optimizer, variables, step)
    for key, got in numpy(variables).items():
        expected = ORACLES[name](key, start[key], [long[key] / 2, short[key]])
        np.testing.assert_allclose(got, expected, atol=2e-5, err_msg=key)
        assert np.abs(got - start[key]).max() > 1e-3


def test_muon_over_several_steps_is_the_formula(variables):
    start, gradients, weight_decay = numpy(variables), random_gradients(variables, 4), 0.3
    optimizer = Muon(RATE, global_clipnorm=None, weight_decay=weight_decay)
    for step in gradients:
        apply(optimizer, variables, step)
    for name, got in numpy(variables).items():
        mine = [step[name] for step in gradients]
        if name in HIDDEN:
            expected = muon(start[name], mine, blocks=4 if name.startswith("lstm") else 1, weight_decay=weight_decay)
        else:
            expected = adam(start[name], mine, 0.2 * RATE, weight_decay=RATE * weight_decay * (start[name].ndim == 2))
        np.testing.assert_allclose(got, expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_table_of_numbers_is_no_matrix_and_goes_to_adam(randomize, blocks):
    convolution = layers.CausalDepthwiseConv1D(4)
    convolution.build((None, None, 3))
    kernel = randomize(convolution).kernel
    assert muon_blocks(kernel) == 0
    kernel.muon_blocks = blocks
    start, gradients = ops.convert_to_numpy(kernel), random_gradients({"kernel": kernel}, 3)
    optimizer = Muon(RATE, global_clipnorm=None, weight_decay=0.3)
    for step in gradients:
        apply(optimizer, {"kernel": kernel}, step)
    assert muon_blocks(kernel) == blocks
    mine = [step["kernel"] for step in gradients]
    expected = muon(start, mine, weight_decay=0.3) if blocks else adam(start, mine, 0.2 * RATE, weight_decay=RATE * 0.3)
    np.testing.assert_allclose(ops.convert_to_numpy(kernel), expected, atol=1e-5)


def test_unclipped_adamw_is_that_of_keras(variables):
    copies = {name: keras.Variable(ops.convert_to_numpy(v), name="copy") for name, v in variables.items()}
    ours, theirs = AdamW(RATE, global_clipnorm=None), keras.optimizers.AdamW(RATE)
    for step in random_gradients(variables, 3):
        apply(ours, variables, step)
        apply(theirs, copies, step)
    atol = 3e-6 if keras.backend.backend() == "torch" else 1e-6  # its fused Adam rounds 1 - beta_2^t in float32
    for name, expected in numpy(copies).items():
        np.testing.assert_allclose(numpy(variables)[name], expected, atol=atol, err_msg=name)


@pytest.mark.parametrize("ns_steps", [1, 2, 3])
@pytest.mark.parametrize("shape", [(4, 4), (3, 20), (20, 3), (1, 5)])
def test_singular_values_go_through_the_polynomials(shape, ns_steps):
    x = 100 * np.random.default_rng(1).normal(size=shape)
    got = ops.convert_to_numpy(polar_express(wide_and_normalized(ops.array(x, "float32"), "float32"), ns_steps))
    expected = reference_polar_express(x, ns_steps)
    np.testing.assert_allclose(got if shape[0] <= shape[1] else got.T, expected, atol=2e-4)


@pytest.mark.parametrize("kind", [Muon, NorMuon])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_matrices_of_one_shape_move_together_as_they_do_one_by_one(kind, shape, monkeypatch):
    random = np.random.default_rng(3)
    shapes = {"a": shape, "b": (4, 4), "gates": (shape[0], 2 * shape[1]), "c": shape, "more_gates": (shape[0], 10)}
    starts = {name: random.normal(size=size).astype("float32") for name, size in shapes.items()}
    steps = [{name: random.normal(size=size) for name, size in shapes.items()} for _ in range(2)]
    ends = []
    for together in (False, True):
        monkeypatch.setattr("keras_seq.training.muon.are_faster_together", lambda *_, result=together: result)
        variables = {name: keras.Variable(start, name=name) for name, start in starts.items()}
        for name in ("gates", "more_gates"):
            variables[name].muon_blocks = 2
        optimizer = kind(RATE, global_clipnorm=1.0)
        for gradients in steps:
            apply(optimizer, variables, gradients)
        ends.append(numpy(variables))
    for name, expected in ends[0].items():
        assert np.abs(expected - starts[name]).max() > 1e-2
        np.testing.assert_allclose(ends[1][name], expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("decay", "factor"), [(0.99, 0.01), (0.99, 1.0), (1.0, 0.37)])
def test_shares_of_variables_and_tensors_are_those_of_each_dtype(decay, factor):
    values, dtypes = np.random.default_rng(0).normal(size=(2, 3, 4)), ["bfloat16", "float32", "float32"]
    variables = [keras.Variable(x, dtype=dtype) for x, dtype in zip(values[0], dtypes, strict=True)]
    add_all(
        variables, [ops.convert_to_tensor(x, dtype) for x, dtype in zip(values[1], dtypes, strict=True)], decay, factor
    )
    for variable, expected in zip(variables, decay * values[0] + factor * values[1], strict=True):
        rtol = 1e-5 if variable.dtype == "float32" else 0.02
        np.testing.assert_allclose(
            ops.convert_to_numpy(ops.cast(variable, "float32")), expected, rtol=rtol, atol=rtol / 2
        )


@pytest.mark.parametrize("kind", [Muon, NorMuon])
def test_weights_of_several_dtypes_move_as_those_of_one(kind):
    random = np.random.default_rng(4)
    shapes, dtypes = {"matrix": (3, 4), "other_matrix": (3, 4), "a": (3,), "b": (3,)}, ["bfloat16", "float32"] * 2
    starts = {name: random.normal(size=shape) for name, shape in shapes.items()}
    steps, ends = [{name: random.normal(size=shape) for name, shape in shapes.items()} for _ in range(2)], []
    for kinds in (dtypes, ["float32"] * 4):
        variables = {
            name: keras.Variable(start, dtype=dtype, name=name)
            for (name, start), dtype in zip(starts.items(), kinds, strict=True)
        }
        optimizer = kind(RATE)
        for step in steps:
            gradients = [ops.cast(step[name], variable.dtype) for name, variable in variables.items()]
            optimizer.apply(gradients, list(variables.values()))
        ends.append({name: ops.convert_to_numpy(ops.cast(variable, "float32")) for name, variable in variables.items()})
    for (name, expected), dtype in zip(ends[1].items(), dtypes, strict=True):
        np.testing.assert_allclose(ends[0][name], expected, atol=1e-5 if dtype == "float32" else 0.03, err_msg=name)


def test_bfloat16_is_near_float32():
    x = ops.array(np.random.default_rng(1).normal(size=(60, 80)), "float32")
    exact, got = (polar_express(wide_and_normalized(x, dtype), 3) for dtype in ("float32", "bfloat16"))
    assert keras.backend.standardize_dtype(got.dtype) == "bfloat16"
    exact, got = (ops.convert_to_numpy(ops.cast(y, "float32")) for y in (exact, got))
    # 0.12 where a processor has no instructions for bfloat16 (TensorFlow rounds partial sums to it), else below 0.1
    assert np.linalg.norm(got - exact) < 0.15 * np.linalg.norm(exact)


def test_seven_steps_give_the_polar_factor():
    random = np.random.default_rng(2)
    u, v = (np.linalg.qr(random.normal(size=(40, 40)))[0] for _ in range(2))
    x = (u * np.logspace(-2, 0, 40)) @ v
    got = polar_express(wide_and_normalized(ops.array(x, "float32"), "float32"), 7)
    np.testing.assert_allclose(ops.convert_to_numpy(got), u @ v, atol=1e-3)


def test_the_decay_of_neurons_is_a_fraction():
    with pytest.raises(ValueError, match=r"neuron_beta_2=1\.0; expected"):
        NorMuon(neuron_beta_2=1.0)


@pytest.mark.parametrize("kind", [Muon, NorMuon])
def test_a_gradient_of_zeros_moves_no_matrix(variables, kind):
    start = numpy(variables)
    apply(kind(RATE), variables, {name: np.zeros(v.shape) for name, v in variables.items()})
    for name, got in numpy(variables).items():
        np.testing.assert_array_equal(got, start[name])


def test_the_average_is_the_first_weights_and_then_moves_towards_later_ones(variables):
    optimizer, expected = AdamW(RATE, use_ema=True, ema_momentum=0.8), None
    for gradients in random_gradients(variables, 3):
        apply(optimizer, variables, gradients)
        now = numpy(variables)
        expected = {name: 0.8 * expected[name] + 0.2 * now[name] for name in now} if expected else now
    optimizer.finalize_variable_values(list(variables.values()))
    for name, got in numpy(variables).items():
        np.testing.assert_allclose(got, expected[name], atol=1e-6, err_msg=name)
        assert np.abs(got - now[name]).max() > 1e-3


@unlike_kinds
def test_the_norm_is_over_all_weights_and_longer_gradients_are_shortened_to_the_clip(kind, variables):
    gradients = random_gradients(variables, 1)[0]
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    quarter = {name: g / 4 for name, g in gradients.items()}
    states = []
    for given, clip in ((gradients, norm / 4), (quarter, None), (gradients, norm * 4), (gradients, None)):
        optimizer = kind(RATE, global_clipnorm=clip, **({"momentum": 0.9} if kind is OPTIMIZERS["sgd"] else {}))
        apply(optimizer, variables, given)
        assert float(optimizer.gradient_norm) == pytest.approx(norm if given is gradients else norm / 4, rel=1e-5)
        states.append([ops.convert_to_numpy(v) for v in optimizer.variables if v is not optimizer.gradient_norm])
    assert len(states[0]) >= 3 + len(variables)  # the step, the learning rate, the first bad step; sums by weight
    for clipped, shortened, short, unclipped in zip(*states, strict=True):
        np.testing.assert_allclose(clipped, shortened, rtol=1e-4)
        np.testing.assert_allclose(short, unclipped, rtol=1e-6)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(states[0], states[3], strict=True))


@unlike_kinds
def test_gradients_of_a_scaled_loss_do_what_the_plain_ones_do(kind, variables):
    start = [ops.convert_to_numpy(v) for v in variables.values()]
    ends = []
    for factor in (None, 1024.0):
        for variable, value in zip(variables.values(), start, strict=True):
            variable.assign(value)
        optimizer = kind(RATE, global_clipnorm=0.5, loss_scale_factor=factor)
        for gradients in random_gradients(variables, 2):
            apply(optimizer, variables, {name: g * (factor or 1.0) for name, g in gradients.items()})
        ends.append((float(optimizer.gradient_norm), numpy(variables)))
    (norm, plain), (scaled_norm, scaled) = ends
    assert scaled_norm == pytest.approx(norm, rel=1e-5)
    for name, expected in plain.items():
        np.testing.assert_allclose(scaled[name], expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_an_optimizer_from_its_config_has_the_same_config(kind):
    options = {"global_clipnorm": 0.5, **OPTIONS[kind.__name__.lower()]}
    optimizer = kind(WarmupLinearDecay(0.1, total_steps=10, warmup_steps=3, final_lr_fraction=0.2), **options)
    revived = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(revived) is kind
    assert revived.get_config() == optimizer.get_config()
    assert {name: revived.get_config()[name] for name in options} == options


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
@pytest.mark.parametrize("global_clipnorm", [0, -1.0, float("nan")])
def test_a_clip_that_is_no_length_is_refused(kind, global_clipnorm):
    with pytest.raises(ValueError, match="global_clipnorm="):
        kind(RATE, global_clipnorm=global_clipnorm)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_as_train_has_it_lowers_the_loss(name):
    train, family = TrainConfig(optimizer=name), types.SimpleNamespace(loops=False)
    optimizer = OPTIMIZERS[name](train.peak_learning_rate(family), **train.optimizer_options(family, 10))
    random, losses = np.random.default_rng(0), []
    x, solution = random.normal(size=(16, 6)), random.normal(size=(6, 3))
    weight = keras.Variable(random.normal(size=(6, 3)), name="weight")
    for _ in range(5):
        error = x @ (ops.convert_to_numpy(weight) - solution)
        losses.append(np.square(error).mean())
        optimizer.apply([ops.array(2 * x.T @ error / error.size, "float32")], [weight])
    assert all(after < before for before, after in itertools.pairwise(losses)), losses


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"muon", "normuon"}))
def test_the_defaults_are_those_of_keras(name):
    kind = OPTIMIZERS[name]
    ours, theirs = (each(name=name).get_config() for each in (kind, getattr(keras.optimizers, kind.__name__)))
    assert ours == theirs


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow has sparse gradients")
@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_an_id_that_is_there_twice_counts_with_the_sum_of_its_gradients(kind):
    import tensorflow as tf

    rows, ids = np.random.default_rng(0).normal(size=(4, 3)).astype("float32"), [2, 0, 2, 2]
    whole = np.zeros((5, 3), "float32")
    np.add.at(whole, ids, rows)
    ends = []
    for gradient in (tf.IndexedSlices(tf.constant(rows), tf.constant(ids), tf.constant([5, 3])), tf.constant(whole)):
        layer = keras.layers.Embedding(5, 3, embeddings_initializer="ones")
        layer.build()
        optimizer = kind(RATE, global_clipnorm=1.0)
        optimizer.apply([gradient], [layer.embeddings])
        assert float(optimizer.gradient_norm) == pytest.approx(np.sqrt((whole**2).sum()), rel=1e-5)
        ends.append(ops.convert_to_numpy(layer.embeddings))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="only TensorFlow forgets the shapes of gradients")
def test_a_model_learns_where_the_shape_of_its_batches_is_not_known():
    import tensorflow as tf

    model = keras.Sequential([keras.layers.Embedding(5, 4), keras.layers.Dense(5)])
    model.compile(OPTIMIZERS["adam"](RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = np.array([[1, 3]])
    unknown = tf.TensorSpec((None, None), "int32")
    batches = tf.data.Dataset.from_generator(lambda: itertools.repeat((ids, ids)), output_signature=(unknown, unknown))
    losses = model.fit(batches, steps_per_epoch=2, epochs=5, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("clip", [{"clipvalue": 0.3}, {"clipnorm": 0.4}])
def test_muon_clips_each_gradient_as_keras_does(variables, clip):
    before = {name: ops.convert_to_numpy(v).copy() for name, v in variables.items()}
    ends = []
    for options in (clip, {}):
        optimizer = Muon(RATE, **options)
        for name, v in variables.items():
            v.assign(before[name])
        optimizer.build([*variables.values()])
        for gradients in random_gradients(variables, 3):
            each = [ops.convert_to_tensor(g, "float32") for g in gradients.values()]
            each = each if options else keras.optimizers.SGD(0.1, **clip)._clip_gradients(each)
            optimizer.apply(each, [*variables.values()])
        ends.append([ops.convert_to_numpy(v) for v in variables.values()])
    for got, expected in zip(*ends, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_muon_decays_no_weight_that_is_excluded(variables):
    optimizer = Muon(RATE, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=[variables["wide/kernel"]])
    before = {name: ops.convert_to_numpy(v).copy() for name, v in variables.items()}
    optimizer.build([*variables.values()])
    optimizer.apply([ops.zeros(v.shape) for v in variables.values()], [*variables.values()])
    for name, v in variables.items():
        decay = RATE * 0.5 if len(v.shape) == 2 and name != "wide/kernel" else 0.0
        np.testing.assert_allclose(ops.convert_to_numpy(v), before[name] * (1 - decay), rtol=1e-6)
    assert optimizer.weight_decay == 0.5


def oracle(step, peak, total, warmup, final):
    """Two straight lines, by interpolation between their corners."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return float(np.interp(step, [warmup, max(total, warmup + 1)], [peak, final * peak]))


@pytest.mark.parametrize(
    ("total", "warmup", "final"), [(20, 5, 0.1), (20, 0, 0.0), (7, 7, 0.5), (1, 0, 0.02), (3, 9, 0)]
)
def test_it_rises_and_falls_in_straight_lines(total, warmup, final):
    schedule = WarmupLinearDecay(0.3, total, warmup, final)
    steps = range(total + 3)
    expected = [oracle(step, 0.3, total, warmup, final) for step in steps]
    np.testing.assert_allclose([schedule(step) for step in steps], expected, rtol=1e-6, atol=1e-9)
    tensors = [schedule(keras.Variable(step, dtype="int32", trainable=False)) for step in steps]
    np.testing.assert_allclose([float(rate) for rate in tensors], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (WarmupLinearDecay(1.0, total_steps=4, warmup_steps=2), [0.5, 1.0, 1.0, 0.5]),
        (InverseSqrtDecay(4, warmup_steps=2), [0.5 / 8**0.5, 0.5 / 2**0.5, 0.5 / 3**0.5]),
    ],
)
def test_an_optimizer_reads_a_schedule_at_its_own_step(schedule, rates):
    optimizer, weight, values = keras.optimizers.SGD(schedule), keras.Variable([0.0]), [0.0]
    for _ in rates:
        optimizer.apply([ops.ones(1)], [weight])
        values.append(float(ops.convert_to_numpy(weight)[0]))
    np.testing.assert_allclose(-np.diff(values), rates, rtol=1e-5)


@pytest.mark.parametrize(("embedding_dim", "warmup", "factor"), [(512, 4000, 1.0), (16, 5, 2.5), (8, 1, 1.0)])
def test_the_inverse_square_root_is_the_papers_formula_with_steps_from_one(embedding_dim, warmup, factor):
    schedule = InverseSqrtDecay(embedding_dim, warmup, factor)
    steps = [0, 1, 2, warmup - 1, warmup, 3 * warmup, 100 * warmup]
    expected = [factor * embedding_dim**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5) for step in steps]
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "schedule", [WarmupLinearDecay(0.3, 20, 5, final_lr_fraction=0.1), InverseSqrtDecay(64, 10, factor=3.0)]
)
def test_a_schedule_comes_back_from_its_config(schedule):
    serialize, revive = keras.optimizers.schedules.serialize, keras.optimizers.schedules.deserialize
    assert vars(revive(serialize(schedule))) == vars(schedule)


@pytest.mark.parametrize(
    "options", [{"embedding_dim": 0}, {"embedding_dim": 8, "warmup_steps": 0}, {"embedding_dim": 8, "factor": 0}]
)
def test_an_argument_of_the_inverse_square_root_out_of_its_range_is_refused_by_name(options):
    name, value = list(options.items())[-1]
    with pytest.raises(ValueError, match=f"{name}={value}; expected"):
        InverseSqrtDecay(**options)


def test_the_adam_part_is_that_of_keras(variables):
    rest = {name: v for name, v in variables.items() if name not in HIDDEN}
    copies = {name: keras.Variable(ops.convert_to_numpy(v), name="copy") for name, v in rest.items()}
    ours, theirs = Muon(RATE, global_clipnorm=None), keras.optimizers.Adam(0.2 * RATE, beta_2=0.99, epsilon=1e-8)
    for step in random_gradients(rest, 3):
        apply(ours, rest, step)
        apply(theirs, copies, step)
    for name, expected in numpy(copies).items():
        np.testing.assert_allclose(numpy(rest)[name], expected, atol=1e-5, err_msg=name)


def test_adam_is_adamw_without_decay(variables):
    start, ends = [ops.convert_to_numpy(v) for v in variables.values()], []
    for optimizer in (OPTIMIZERS["adam"](RATE), AdamW(RATE, weight_decay=0.0)):
        for variable, value in zip(variables.values(), start, strict=True):
            variable.assign(value)
        for gradients in random_gradients(variables, 2):
            apply(optimizer, variables, gradients)
        ends.append(numpy(variables))
    for name, expected in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], expected, err_msg=name)
