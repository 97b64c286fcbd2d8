import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.training import AdamW, Muon, WarmupDecay
from keras_seq.training.optimizers import OPTIMIZERS, orthogonal

RATE = 0.05


@pytest.fixture
def variables(randomize):
    """Tall, wide and blocked hidden matrices, and one weight of each kind that AdamW is to move, by name."""
    made = {
        "tall": keras.layers.Dense(3, name="tall"),
        "wide": keras.layers.Dense(7, use_bias=False, name="wide"),
        "headless": keras.layers.Dense(4, use_bias=False, name="headless"),
        "lstm": layers.LSTM(3, name="lstm"),
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


def newton_schulz(x):
    """The published iteration (Jordan, 2024), written for one matrix with rows <= columns."""
    if x.shape[0] > x.shape[1]:
        return newton_schulz(x.T).T
    x = x / np.sqrt((x**2).sum())
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


def muon(weight, gradients, blocks=1, rate=RATE, momentum=0.95, decay=0.0):
    """Block by block: heavy ball, looked ahead (Nesterov), made orthogonal, scaled by sqrt(max(1, columns / rows))."""
    pieces = []
    for block, *pushes in zip(*(np.split(a, blocks, axis=1) for a in (weight, *gradients)), strict=True):
        velocity = np.zeros_like(block)
        for push in pushes:
            velocity = momentum * velocity + push
            step = newton_schulz(push + momentum * velocity) * max(1, block.shape[1] / block.shape[0]) ** 0.5
            block = block - rate * decay * block - rate * step
        pieces.append(block)
    return np.concatenate(pieces, axis=1)


def adam(weight, gradients, rate, beta_1=0.9, beta_2=0.99, epsilon=1e-8, decay=0.0):
    """Kingma & Ba (2015) with decoupled decay (Loshchilov & Hutter, 2019)."""
    mean = square = 0.0
    for t, gradient in enumerate(gradients, 1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
        weight = weight - decay * weight
        weight = weight - rate * (mean / (1 - beta_1**t)) / (np.sqrt(square / (1 - beta_2**t)) + epsilon)
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_muon_over_several_steps_is_the_formula(variables, decay):
    start, gradients = numpy(variables), random_gradients(variables, 4)
    optimizer = Muon(RATE, clip_norm=None, decay=decay)
    for step in gradients:
        apply(optimizer, variables, step)
    for name, got in numpy(variables).items():
        mine = [step[name] for step in gradients]
        if name in HIDDEN:
            expected = muon(start[name], mine, blocks=4 if name.startswith("lstm") else 1, decay=decay)
        else:
            expected = adam(start[name], mine, 0.2 * RATE, decay=RATE * decay * (start[name].ndim == 2))
        np.testing.assert_allclose(got, expected, atol=1e-5, err_msg=name)


def test_what_is_neither_hidden_nor_a_matrix_goes_to_adam(variables):
    assert {name for name, v in variables.items() if Muon.is_hidden_matrix(v)} == HIDDEN


def test_the_adam_part_is_that_of_keras(variables):
    rest = {name: v for name, v in variables.items() if name not in HIDDEN}
    copies = {name: keras.Variable(ops.convert_to_numpy(v), name="copy") for name, v in rest.items()}
    ours, theirs = Muon(RATE, clip_norm=None), keras.optimizers.Adam(0.2 * RATE, beta_2=0.99, epsilon=1e-8)
    for step in random_gradients(rest, 3):
        apply(ours, rest, step)
        apply(theirs, copies, step)
    for name, expected in numpy(copies).items():
        np.testing.assert_allclose(numpy(rest)[name], expected, atol=1e-5, err_msg=name)


def test_unclipped_adamw_is_that_of_keras(variables):
    copies = {name: keras.Variable(ops.convert_to_numpy(v), name="copy") for name, v in variables.items()}
    ours, theirs = AdamW(RATE, clip_norm=None), keras.optimizers.AdamW(RATE)
    for step in random_gradients(variables, 3):
        apply(ours, variables, step)
        apply(theirs, copies, step)
    for name, expected in numpy(copies).items():
        np.testing.assert_allclose(numpy(variables)[name], expected, atol=1e-6, err_msg=name)


def test_each_gate_is_made_orthogonal_on_its_own(variables):
    kernel, gradient = variables["lstm/recurrent_kernel"], random_gradients(variables, 1)[0]["lstm/recurrent_kernel"]
    start = ops.convert_to_numpy(kernel).astype("float64")
    apply(Muon(RATE, clip_norm=None), {"kernel": kernel}, {"kernel": gradient})
    got = ops.convert_to_numpy(kernel)
    np.testing.assert_allclose(got, muon(start, [gradient], blocks=4), atol=1e-5)
    assert np.abs(got - muon(start, [gradient], blocks=1)).max() > 1e-2
    for gate in np.split((start - got) / RATE, 4, axis=1):
        assert np.linalg.svd(gate, compute_uv=False) == pytest.approx(np.ones(3), abs=0.35)


@pytest.mark.parametrize("shape", [(4, 4), (3, 20), (20, 3), (1, 5), (2, 5, 7)])
def test_singular_values_go_near_one_and_singular_vectors_stay(shape):
    x = np.random.default_rng(1).normal(size=shape)
    u, s, v = np.linalg.svd(x, full_matrices=False)
    x = (u * np.linspace(1, 3, s.shape[-1])) @ v  # well away from singular
    got = ops.convert_to_numpy(orthogonal(ops.array(x, "float32")))
    turned = np.swapaxes(u, -1, -2) @ got @ np.swapaxes(v, -1, -2)
    values = np.diagonal(turned, axis1=-2, axis2=-1)
    assert ((values > 0.65) & (values < 1.25)).all()
    np.testing.assert_allclose(turned, values[..., None] * np.eye(s.shape[-1]), atol=1e-4)


def test_a_gradient_of_zeros_moves_no_matrix(variables):
    start = numpy(variables)
    apply(Muon(RATE), variables, {name: np.zeros(v.shape) for name, v in variables.items()})
    for name, got in numpy(variables).items():
        np.testing.assert_array_equal(got, start[name])


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_the_norm_is_over_all_weights_and_longer_gradients_are_shortened_to_the_clip(kind, variables):
    gradients = random_gradients(variables, 1)[0]
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    moments = []
    for clip in (norm / 4, norm * 4, None):
        optimizer = kind(RATE, clip_norm=clip)
        apply(optimizer, variables, gradients)
        assert float(optimizer.gradient_norm) == pytest.approx(norm, rel=1e-5)
        moments.append([ops.convert_to_numpy(v) for v in optimizer.variables if "momentum" in v.path])
    assert len(moments[0]) == len(variables)
    for clipped, short, unclipped in zip(*moments, strict=True):
        np.testing.assert_allclose(clipped, short / 4, rtol=1e-4)
        np.testing.assert_allclose(short, unclipped, rtol=1e-6)


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_gradients_of_a_scaled_loss_do_what_the_plain_ones_do(kind, variables):
    start = [ops.convert_to_numpy(v) for v in variables.values()]
    ends = []
    for factor in (None, 1024.0):
        for variable, value in zip(variables.values(), start, strict=True):
            variable.assign(value)
        optimizer = kind(RATE, clip_norm=0.5, loss_scale_factor=factor)
        for gradients in random_gradients(variables, 2):
            apply(optimizer, variables, {name: g * (factor or 1.0) for name, g in gradients.items()})
        ends.append((float(optimizer.gradient_norm), numpy(variables)))
    (norm, plain), (scaled_norm, scaled) = ends
    assert scaled_norm == pytest.approx(norm, rel=1e-5)
    for name, expected in plain.items():
        np.testing.assert_allclose(scaled[name], expected, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_the_first_bad_step_is_named_and_stays(kind, bad, variables):
    optimizer, bias = kind(RATE), {"head/bias": variables["head/bias"]}
    gradient = {"head/bias": np.ones(5)}
    for _ in range(2):
        apply(optimizer, bias, gradient)
        assert int(optimizer.first_bad_step) == -1
    for now in (bad, 1.0, bad):
        apply(optimizer, bias, {"head/bias": np.array([1, 1, now, 1, 1])})
        assert int(optimizer.first_bad_step) == 2


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_an_optimizer_from_its_config_has_the_same_config(kind):
    options = {"beta_1": 0.8, "epsilon": 1e-6, "clip_norm": 0.5}
    if kind is Muon:
        options |= {"adam_ratio": 0.3, "momentum": 0.9, "decay": 0.01, "beta_2": 0.95}
    optimizer = kind(WarmupDecay(0.1, total_steps=10, warmup_steps=3, final_fraction=0.2), **options)
    revived = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(revived) is kind
    assert revived.get_config() == optimizer.get_config()
    assert {name: getattr(revived, name) for name in options} == options


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
@pytest.mark.parametrize("clip_norm", [0, -1.0, float("nan")])
def test_a_clip_that_is_no_length_is_refused(kind, clip_norm):
    with pytest.raises(ValueError, match="clip_norm="):
        kind(RATE, clip_norm=clip_norm)
