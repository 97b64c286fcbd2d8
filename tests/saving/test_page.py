"""A page computes, reads and writes as its model does. Its engine runs in Node here; `test_living_page.py` opens it."""

import dataclasses
import functools
import html.parser
import json
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax

import keras_seq
from keras_seq import interpretability, models
from keras_seq.models import LANGUAGE_MODELS, BertConfig, Ensemble, LSTMConfig, TransformerConfig
from keras_seq.models.config import tiny_config
from keras_seq.models.exported_model import named_tensors
from keras_seq.ops.compiled import compiled
from keras_seq.saving import export_page
from keras_seq.saving.page import model_data, round_weights
from keras_seq.saving.page import page as page_of_data
from keras_seq.tokenizers import CharacterTokenizer, WordTokenizer
from tests.conftest import functions_run_eagerly, often, randomized
from tests.processes import ROOT

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
writes = pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow writes it")
runs = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
pytestmark = pytest.mark.any_backend

KNOWN = "\n abcdé𝄞"  # one of them is two units of JavaScript's strings
TOKENIZER = CharacterTokenizer(KNOWN)
CONTEXT = 60
# not the sizes of another test: each axis has a length of its own
SIZES = {"embedding_dim": 8, "units": 12, "num_layers": 2, "feed_forward_dim": 20, "kernel_size": 3}
SIZES["context_length"] = CONTEXT
ATTENTIVE = {"context_length": 24, "use_output_gate": True, "use_sinks": True, "use_forget_gate": True}
QUICK = ("lstm", "hybrid")
every_model = often("name", LANGUAGE_MODELS, QUICK)


@functools.cache
def small(name, **changes):
    keras.utils.set_random_seed(1)
    return randomized(tiny_config(name, **{**SIZES, **changes}).build_model(TOKENIZER.vocabulary_size))


def ask(path, *requests):
    """What the engine answers to requests; see run_engine.js."""
    command = ["node", ROOT / "tests/saving/run_engine.js", path]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_steps(model, steps, ids):
    """Compare logits and states with those of the model; 1e-5 of the largest number, where that is over 1."""
    state, step = model.get_initial_state(1), compiled(model.step, model)
    for id, found in zip(ids, steps, strict=True):
        logits, state = step(np.array([[id]], "int32"), state)
        states = named_tensors(state)
        assert states.keys() == found["state"].keys()
        for ours, theirs in [(found["logits"], logits), *((found["state"][name], states[name]) for name in states)]:
            theirs = ops.convert_to_numpy(theirs).ravel()
            atol = 1e-5 * max(1, np.abs(theirs).max(initial=0))
            np.testing.assert_allclose(np.array(ours, "float64"), theirs, atol=atol, rtol=0)


def some_ids(count, seed=0):
    return np.random.default_rng(seed).integers(TOKENIZER.vocabulary_size, size=count).tolist()


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    @functools.cache
    def page_of(name, **changes):
        path = tmp_path_factory.mktemp(name) / "page.html"
        keras_seq.export(small(name, **changes), path, "page", tokenizer=TOKENIZER)
        return path

    return page_of


@runs
@writes
@every_model
def test_logits_states_and_texts_are_those_of_the_model(page_of, name):
    model, ids = small(name), some_ids(CONTEXT)
    options = [{"temperature": 0.7 + 0.1 * seed, "top_p": 1 - 0.1 * seed, "seed": 10**seed} for seed in range(4)]
    options.append({"temperature": 0.0, "top_p": 1.0, "seed": 2**40 + 1})
    write = {"method": "write", "model": 0, "prompt": "a 𝄞é", "count": 40}
    asked = [write | {"temperature": o["temperature"], "topP": o["top_p"], "seed": o["seed"]} for o in options]
    steps, *texts = ask(page_of(name), {"method": "steps", "model": 0, "ids": ids}, *asked)
    check_steps(model, steps, ids)
    for text, option in zip(texts, options, strict=True):
        option = {k: v for k, v in option.items() if (k, v) != ("top_p", 1.0)}
        assert text == keras_seq.generate(model, TOKENIZER, "a 𝄞é", 40, **option)
    assert len({*texts}) > 3


@runs
@writes
def test_gates_and_sinks_of_attention_are_those_of_the_model(page_of):
    model, ids = small("transformer", **ATTENTIVE), some_ids(20)
    (steps,) = ask(page_of("transformer", **ATTENTIVE), {"method": "steps", "model": 0, "ids": ids})
    check_steps(model, steps, ids)


@runs
@writes
@often("context_length", [1, 2, 9, 24], [24])
def test_a_full_cache_starts_anew_as_in_generate_and_score(page_of, context_length):
    changes = ATTENTIVE | {"context_length": context_length}
    path, model = page_of("transformer", **changes), small("transformer", **changes)
    # windows of a score move by half of the context; the last one ends with the text: here that is such a move, too
    text = ("abc dé𝄞\n" * 8)[: context_length + 1 + 3 * max(1, context_length // 2)]
    request = {"method": "write", "model": 0, "prompt": text, "count": 30, "temperature": 1, "topP": 1, "seed": 3}
    written, read = ask(path, request, {"method": "read", "model": 0, "edits": [[text, []]]})
    assert written == keras_seq.generate(model, TOKENIZER, text, 30, seed=3)
    with functions_run_eagerly():
        expected = keras_seq.score(model, TOKENIZER, text).token_losses / np.log(2)
    if context_length > 1:
        np.testing.assert_allclose(np.array(read["losses"], float)[1:], expected[1:], atol=1e-4)


@runs
@writes
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_text_is_read_as_if_it_had_always_been_what_it_is(page_of, name):
    path, text = page_of(name, **(ATTENTIVE if name == "transformer" else {})), "abc dé𝄞\nba " * 6
    changed = text[:35] + "c𝄞" + text[36:]
    texts = [[text, []], [changed, []], [changed, [20, 40]], [changed[:50], [20]], [changed[:50] + "aaa", []], ["", []]]
    edited = [
        {"method": "read", "model": 0, "edits": texts[: n + 1], "looks": [0] if texts[n][0] else []} for n in range(6)
    ]
    fresh = [{"method": "read", "model": 0, "edits": [edit], "looks": [0] if edit[0] else []} for edit in texts]
    answers = ask(path, *edited, *fresh)
    assert answers[:6] == answers[6:]
    assert answers[5]["losses"] == []
    assert answers[5]["next"] is None


@runs
@writes
def test_after_forgetting_a_text_is_read_as_a_new_one_and_unknown_characters_are_no_part_of_it(page_of):
    def read(text, forgets=()):
        return {"method": "read", "model": 0, "edits": [[text, [*forgets]]]}

    for name in ("lstm", "transformer"):
        first, second = "abc abé", "dbé a\ncc"
        both, one, other, mixed = ask(
            page_of(name), read(first + second, [7]), read(first), read(second), read("aXbcYY abZé")
        )
        assert both["losses"] == one["losses"] + other["losses"]
        assert one["losses"][0] == other["losses"][0] == "NaN"
        assert both["next"] == other["next"]
        assert [loss for n, loss in enumerate(mixed["losses"]) if n not in (1, 4, 5, 9)] == one["losses"]
        assert [mixed["losses"][n] for n in (1, 4, 5, 9)] == ["NaN"] * 4


@runs
@writes
def test_what_a_reader_shows_is_what_inspection_finds(page_of):
    text = "abc dé𝄞\nba ac"
    ids, model, request = TOKENIZER.encode(text), small("transformer", **ATTENTIVE), {"method": "read", "model": 0}
    request |= {"edits": [[text, []]], "looks": [*range(len(ids))]}
    (answer,) = ask(page_of("transformer", **ATTENTIVE), request)
    assert len(answer["views"]) == len(ids) == 13
    weights = interpretability.attention_weights(model, ids[None])
    lens = interpretability.logit_lens(model, ids[None])
    for t, views in enumerate(answer["views"]):
        shown = {view["layer"]: view for view in views if view["kind"] == "attention"}
        assert shown.keys() == weights.keys()
        for layer, view in shown.items():
            assert view["positions"] == [*range(t + 1)]
            np.testing.assert_allclose(view["heads"], weights[layer][0, :, t, : t + 1], atol=1e-5)
        (layers,) = (view["layers"] for view in views if view["kind"] == "lens")
        assert [layer["layer"] for layer in layers] == [*lens]
        for layer in layers:
            np.testing.assert_allclose(
                np.log(layer["probabilities"]), log_softmax(lens[layer["layer"]][0, t]), atol=1e-4
            )
    (answer,) = ask(page_of("lstm"), request | {"looks": [5]})
    (gates,) = (view for view in answer["views"][0] if view["kind"] == "gates" and view["layer"] == "lstm_1")
    assert [signal["name"] for signal in gates["signals"]] == [
        *("input gate", "forget gate", "output gate", "cell state c", "output h"),
    ]


@runs
@writes
def test_eight_bits_are_those_of_rounded_weights(tmp_path):
    keras.utils.set_random_seed(1)
    model = LSTMConfig(40, 64).build_model(TOKENIZER.vocabulary_size)
    for quantization in (None, "int8"):
        keras_seq.export(
            model, tmp_path / f"{quantization}.html", "page", tokenizer=TOKENIZER, quantization=quantization
        )
    ids, exact = some_ids(20), model(np.array([some_ids(20)]))
    (steps,) = ask(tmp_path / "int8.html", {"method": "steps", "model": 0, "ids": ids})
    round_weights(model)
    check_steps(model, steps, ids)
    assert 0 < np.abs(np.asarray(model(np.array([ids]))) - np.asarray(exact)).max() < 0.02
    code = sum(path.stat().st_size for path in (ROOT / "keras_seq/saving/templates").iterdir())
    sizes = [(tmp_path / name).stat().st_size - code for name in ("int8.html", "None.html")]
    assert sizes[0] < 0.36 * sizes[1]


@runs
@writes
def test_constants_of_a_layer_are_not_rounded(tmp_path):
    size = 32
    mask = np.triu(np.full((size, size), -np.inf, "float32"), 1)

    @keras.saving.register_keras_serializable(package="tests")
    class Masked(keras.layers.Layer):
        def call(self, x):
            return ops.softmax(x[..., None, :] + ops.convert_to_tensor(mask))[..., 5, :]

    head = keras.layers.Dense(8)
    model = models.LanguageModel(keras.layers.Embedding(8, size), [Masked()], head)
    model.build((None, None))
    keras_seq.export(model, tmp_path / "page.html", "page", tokenizer=TOKENIZER, quantization="int8")
    (steps,) = ask(tmp_path / "page.html", {"method": "steps", "model": 0, "ids": some_ids(8)})
    round_weights(model)
    check_steps(model, steps, some_ids(8))


@runs
@writes
def test_a_carriage_return_has_a_sign_in_the_page(tmp_path):
    tokenizer = CharacterTokenizer("\n\rab")
    model = LSTMConfig(3, 4).build_model(4)
    keras_seq.export(model, tmp_path / "page.html", "page", tokenizer=tokenizer)
    request = {"method": "write", "model": 0, "prompt": "ab␍\n", "count": 40, "temperature": 1, "topP": 1, "seed": 1}
    (text,) = ask(tmp_path / "page.html", request)
    expected = keras_seq.generate(model, tokenizer, "ab\r\n", 40, seed=1)
    assert expected.count("\r") > 3
    assert text == expected.replace("\r", "␍")


@runs
@writes
def test_the_capacity_is_that_of_caches_alone(tmp_path):
    ids = some_ids(20)
    for name in ("lstm", "transformer"):
        path = tmp_path / f"{name}.html"
        keras_seq.export(small(name), path, "page", tokenizer=TOKENIZER, capacity=8)
        limit = re.search(r'"context_length":(\w+)', path.read_text("utf-8"))[1]
        assert limit == ("null" if name == "lstm" else "8")
        (steps,) = ask(path, {"method": "steps", "model": 0, "ids": ids[:8]})
        if name == "lstm":
            check_steps(small(name), steps, ids[:8])


@runs
@writes
def test_two_models_live_in_one_page_and_an_ensemble_does(tmp_path):
    unknown = CharacterTokenizer("abc", oov_token="[UNK]")
    other = LSTMConfig(3, 4).build_model(unknown.vocabulary_size)
    ensemble = Ensemble([small("lstm", num_layers=1), small("transformer", num_layers=1)])
    export_page([ensemble, other], tmp_path / "page.html", [TOKENIZER, unknown])
    ids = some_ids(20)
    first, second, text = ask(
        tmp_path / "page.html",
        {"method": "steps", "model": 0, "ids": ids},
        {"method": "steps", "model": 1, "ids": [0, 3, 2]},
        {"method": "write", "model": 1, "prompt": "a𝄞?", "count": 20, "temperature": 1, "topP": 1, "seed": 1},
    )
    check_steps(ensemble, first, ids)
    check_steps(other, second, [0, 3, 2])
    assert text[3:] == keras_seq.generate(other, unknown, "a𝄞?", 20, seed=1)[3:]


# ---- Operations, one by one: somebody's own step, of state x [1, 3, 4].


class Step:
    """A model whose step is a function of TensorFlow."""

    name, built, context_length, variables, document_token = "step", True, None, (), None

    def __init__(self, function, initial):
        self.function, self.initial = function, initial

    def get_initial_state(self, batch_size):
        return {"x": keras.ops.repeat(ops.convert_to_tensor(self.initial), batch_size, axis=0)}

    def step(self, ids, state):
        y = self.function(state["x"])
        return ops.zeros((ids.shape[0], 3)), {"x": y}


def operations():
    import tensorflow as tf

    raw = tf.raw_ops
    return {
        "slices": lambda x: x[:, ::-1, 1:4:2] + x[..., 0, tf.newaxis][:, 2:0:-1][:, :1],
        "an ellipsis": lambda x: x[0, ..., 1:][tf.newaxis],
        "a last row": lambda x: x[:, -1] * x[:, -2],
        "split": lambda x: tf.split(x, 2, axis=2)[1] - tf.split(x, [1, 1, 2], axis=-1)[2],
        "unstack": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=-1),
        "tile": lambda x: tf.tile(x, [1, 2, 3]),
        "pad": lambda x: tf.pad(x, [[0, 0], [1, 0], [0, 2]]) - tf.pad(x, [[0, 0], [0, 1], [2, 0]], constant_values=2.0),
        "transpose": lambda x: tf.transpose(x, [2, 0, 1]) @ x[:, :, :2],
        "matmul": lambda x: (
            tf.matmul(x, x, transpose_b=True) @ tf.matmul(x[:, None], x[:, None], transpose_a=True)[:, :, :3]
        ),
        "reduce": lambda x: tf.reduce_sum(x, [0, 2]) * tf.reduce_mean(x) + tf.reduce_max(x, -1) - tf.reduce_min(x, 2),
        "product": lambda x: (
            tf.reduce_prod(x, 1) + tf.cast(tf.reduce_all(x > -1, 1) | tf.reduce_any(x > 1, 1), "float32")
        ),
        "cumsum": lambda x: tf.cumsum(x, 1, exclusive=True) + tf.cumsum(x, -1, reverse=True),
        "one hot": lambda x: tf.one_hot(tf.cast(tf.round(x), "int32"), 3, axis=1, on_value=2.0, off_value=-1.0),
        "gather": lambda x: tf.gather(x, tf.cast(x[0, 0] > 0, "int32"), axis=2),
        "gather rows": lambda x: tf.gather(x, tf.cast(x[:, :, :2] > 0, "int32"), axis=2, batch_dims=2),
        "softmax": lambda x: tf.nn.softmax(x) * tf.nn.log_softmax(x),
        "where": lambda x: tf.where(x[:, :1] > x[..., :1], x, 0.5) + tf.where(tf.math.is_finite(1 / (x - x)), x, -x),
        "broadcast": lambda x: tf.broadcast_to(x[:, :1], [2, 3, 4]) + tf.fill([4], x[0, 0, 0]),
        "integers": lambda x: tf.cast(tf.cast(3 * x, "int32") // 2 % 3 - tf.cast(x, "int32"), "float32"),
        "compare": lambda x: tf.cast((x >= 0) & (x <= 1) | tf.logical_not(x < 0.3) & (x != x) | (x == x), "float32"),
        "unary": lambda x: tf.exp(-abs(x)) + tf.sqrt(abs(x)) + tf.math.rsqrt(x * x + 1) + tf.math.log1p(abs(x)) + 1 / x,
        "gates": lambda x: tf.sigmoid(x) + tf.tanh(x) + tf.nn.softplus(x) + tf.nn.relu(x) + tf.nn.relu6(3 * x),
        "more gates": lambda x: tf.nn.elu(x) + tf.nn.softsign(x) + tf.nn.silu(x) + tf.nn.gelu(x) + tf.nn.gelu(x, True),
        "far gates": lambda x: (
            tf.nn.softplus(90 * x) + tf.sigmoid(90 * x) + tf.math.erf(9 * x) + 1e3 * tf.math.erfc(3 * x)
        ),
        "powers": lambda x: (
            abs(x) ** 2.5 + tf.square(x) + tf.math.expm1(x) + tf.math.log(abs(x)) + tf.maximum(x, -x * 2)
        ),
        "angles": lambda x: (
            tf.sin(9 * x) + tf.cos(9 * x) + tf.sign(x) + tf.floor(x) + tf.math.ceil(x) + tf.math.rint(2 * x)
        ),
        "differences": lambda x: tf.math.squared_difference(x, x[:, :1]) + tf.math.divide_no_nan(x, tf.nn.relu(x)),
        "remainders": lambda x: tf.math.floordiv(x, 0.3) + tf.math.floormod(x, 0.3) + tf.minimum(x, 0.1),
        "infinities": lambda x: tf.cast(tf.math.is_nan(x / (x - x)) | tf.math.is_inf(x / (x - x)), "float32"),
        "leaky": lambda x: tf.nn.leaky_relu(x, 0.3) + tf.nn.selu(x) + tf.tan(x / 2) + tf.add_n([x, x * x, x]),
        "turned round": lambda x: tf.reverse(x, [1]) - tf.reverse(x, [-1, 0]),
        "tenths": lambda x: tf.math.floordiv(tf.round(10 * x) / 10, 0.1) + tf.math.floormod(tf.round(10 * x), -3.0),
        "tables": lambda x: x @ tf.linalg.band_part(tf.ones((4, 4)), -1, 0) + tf.linspace(0.0, 1.0, 4) + tf.eye(3, 4),
        "copies": lambda x: raw.IdentityN(input=[x, 2 * x])[1] + raw.IdentityN(input=[x, 2 * x])[0],
        "limits": lambda x: tf.cast(tf.cast(x, "int64") < 2**62, "float32") + tf.cast(tf.cast(x, "int64"), "float32"),
        "old names": lambda x: raw.BiasAdd(value=x, bias=x[0, 0]) + raw.Add(x=x, y=x[:, :1]) + raw.Div(x=x, y=x + 9),
        "constants": lambda x: (
            x + tf.cast(tf.range(4), "float32") * tf.constant(np.arange(48.0).reshape(4, 3, 4), "float32")[1]
        ),
    }


@runs
@writes
def test_operations_compute_what_tensorflow_computes(tmp_path):
    import tensorflow as tf

    x = np.random.default_rng(7).normal(size=(1, 3, 4)).astype("float32")
    functions = operations()
    write_steps([Step(function, x) for function in functions.values()], tmp_path / "page.html")
    requests = [{"method": "steps", "model": number, "ids": [1]} for number in range(len(functions))]
    for (name, function), answer in zip(functions.items(), ask(tmp_path / "page.html", *requests), strict=True):
        expected = np.asarray(function(tf.constant(x)))
        found = np.array(answer[0]["state"]["state_x"], float)
        assert found.size == expected.size, name
        np.testing.assert_allclose(found, expected.ravel(), rtol=2e-6, atol=2e-6, err_msg=name)


def step_data(model):
    """The data of a model whose state may change its shape: one step is enough."""
    from keras_seq.models.exported_model import state_parts
    from keras_seq.saving.step_graph import step_graph

    parts, structure = state_parts(model)
    metadata = {
        "name": "step",
        "context_length": None,
        "state": [dataclasses.asdict(part) for part in parts],
        "tokenizer": CharacterTokenizer("abc").get_config(),
    }
    return model_data(*step_graph(model, parts, structure), metadata, None)


def write_steps(models, path):
    data = [step_data(model) for model in models]
    path.write_text(page_of_data(data, ["step"] * len(data), [""] * len(data), "", ""), encoding="utf-8")


@runs
@writes
def test_the_engine_and_the_writer_know_the_same_operations(page_of):
    from keras_seq.saving import step_graph

    (operations,) = ask(page_of("lstm"), {"method": "operations"})
    assert {*operations} == step_graph.OPERATIONS - step_graph.RESHAPES | {"Reshape"}


@writes
def test_what_a_page_cannot_compute_is_named_and_leaves_nothing(tmp_path):
    import tensorflow as tf

    for function, message in {
        (lambda x: tf.linalg.inv(x[:, :, :3])): "a page has no operation MatrixInverse",
        (lambda x: x[:, : tf.cast(x[0, 0, 0], "int32")]): "depends on a value",
        (lambda x: tf.boolean_mask(x, x > 0)): "a page|depends on a value",
        (lambda x: tf.cast(tf.cast(x, "float64") * 2, "float32")): "not .* in float64",
        (lambda x: tf.cast(tf.cast(x, "int64") * 11035152453, "float32")): "not Mul in int64",
        (lambda x: tf.nn.bias_add(x[:, :, :, None], x[0, 0, :3], data_format="NCHW")): "channels that come first",
        (lambda x: tf.raw_ops.Select(condition=x[:, 0, 0] > 0, x=x, y=-x)): "Select of whole rows",
    }.items():
        with pytest.raises(ValueError, match=message):
            step_data(Step(function, np.ones((1, 3, 4), "float32")))

    @keras.saving.register_keras_serializable(package="tests")
    class Inverse(keras.layers.Layer):
        def call(self, x):
            return x + ops.linalg.inv(ops.eye(2) + x[..., :2, None])[..., 0, :1]

    model = models.LanguageModel(keras.layers.Embedding(8, 6), [Inverse()], keras.layers.Dense(8))
    model.build((None, None))
    with pytest.raises(ValueError, match="cannot be exported to page: a page has no operation Matrix"):
        keras_seq.export(model, tmp_path / "page.html", "page", tokenizer=TOKENIZER)
    assert not [*tmp_path.iterdir()]


def test_arguments_are_checked_before_anything_is_written(tmp_path):
    lstm, words = LSTMConfig(3, 4).build_model(8), WordTokenizer.from_text("a b c d e f")

    def refused(message, models, tokenizers, path="page.html", **options):
        with pytest.raises(ValueError, match=message):
            export_page(models, tmp_path / path, tokenizers, **options)
        assert not [*tmp_path.iterdir()]

    refused("a page reads characters: expected a CharacterTokenizer", [lstm], [words])
    refused("a page reads characters: expected a CharacterTokenizer", [lstm], [None])
    refused("3 models and 3 tokenizers; expected one or two", [lstm] * 3, [TOKENIZER] * 3)
    refused("0 models", [], [])
    refused("2 models and 1 tokenizers", [lstm] * 2, [TOKENIZER])
    refused("expected a name that ends in .html", [lstm], [TOKENIZER], "page.htm")
    refused("quantization='int4'", [lstm], [TOKENIZER], quantization="int4")
    refused("The tokenizer has 3", [lstm], [CharacterTokenizer("abc")])
    refused("2 titles for 1 models", [lstm], [TOKENIZER], titles=["a", "b"])
    refused("expected export_page\\(\\[model\\], path, \\[tokenizer\\]\\)", lstm, TOKENIZER)
    refused("capacity=0", [lstm], [TOKENIZER], capacity=0)
    for name, value in {"title": None, "text": b"ab", "titles": [5], "descriptions": [None]}.items():
        refused(rf"{name}.*; expected a str", [lstm], [TOKENIZER], **{name: value})
    refused("title='.ud800'; expected a str without half", [lstm], [TOKENIZER], title="\ud800")
    diverged = LSTMConfig(3, 4).build_model(8)
    diverged.blocks[0].bias.assign(np.full(16, np.nan))
    refused("has weights that are not finite: it has diverged", [diverged], [TOKENIZER])
    bert = BertConfig(8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=8).build_model(8)
    refused("bert has no step", [bert], [TOKENIZER])
    refused("computes in float64", [LSTMConfig(3, 4).build_model(8, dtype="float64")], [TOKENIZER])


@runs
@pytest.mark.rare
def test_another_backend_has_tensorflow_write_it(tmp_path):
    pytest.importorskip("tensorflow")
    model, ids = TransformerConfig(8, 1, 2, 12, context_length=16).build_model(8), some_ids(16)
    keras_seq.export(model, tmp_path / "page.html", "page", tokenizer=TOKENIZER)
    (steps,) = ask(tmp_path / "page.html", {"method": "steps", "model": 0, "ids": ids})
    check_steps(model, steps, ids)


# ---- The page as a file: text that looks like a page's parts, and pages that are damaged.

PLANES = "".join(
    chr(plane << 16 | low) for plane in range(17) for low in (0x41, 0xFFFD) if plane << 16 | low < 0x110000
)
HOSTILE = "</script><script>bad()</script><!-- <script> {{data}} {{script}} \u2028\u2029\x00\x1b\u202e &lt; " + PLANES


class Scripts(html.parser.HTMLParser):
    """Collects the script elements of a page, and the text outside of them."""

    def __init__(self):
        super().__init__()
        self.scripts, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.text.append(data)


def hostile_page(tmp_path):
    tokenizer = CharacterTokenizer("".join(sorted({*HOSTILE, "\ud7ff"})))
    model = LSTMConfig(3, 4).build_model(tokenizer.vocabulary_size)
    path = tmp_path / "page.html"
    export_page([model], path, [tokenizer], titles=[HOSTILE], descriptions=[HOSTILE], title=HOSTILE, text=HOSTILE)
    return path, tokenizer


@writes
def test_text_stays_text(tmp_path):
    path, tokenizer = hostile_page(tmp_path)
    page = path.read_text(encoding="utf-8")
    parser = Scripts()
    parser.feed(page)
    programs = [content for attributes, content in parser.scripts if attributes.get("type", "module") == "module"]
    folder = ROOT / "keras_seq/saving/templates"
    assert [program.strip() for program in programs] == [
        (folder / name).read_text("utf-8").strip() for name in ("engine.js", "page.js")
    ]
    data = [content for attributes, content in parser.scripts if attributes.get("type") == "application/json"]
    assert len(data) == 2
    assert json.loads(data[0]) == {"title": HOSTILE, "text": HOSTILE, "models": 1}
    spec = json.loads(data[1])
    assert (spec["title"], spec["description"], spec["characters"]) == (HOSTILE, HOSTILE, tokenizer.characters)
    assert "bad()" not in re.sub("<script.*?</script>|<title>.*?</title>", "", page, flags=re.DOTALL)


@runs
@writes
def test_a_damaged_page_says_so(page_of, tmp_path):
    page = page_of("lstm").read_text(encoding="utf-8")
    start = page.index('class="weights">') + 16

    def said(damaged):
        (tmp_path / "page.html").write_text(damaged, encoding="utf-8")
        command = ["node", ROOT / "tests/saving/run_engine.js", tmp_path / "page.html"]
        done = subprocess.run(command, input="[]", capture_output=True, encoding="utf-8")
        assert done.returncode == 1
        return done.stderr

    digit = page[start + 101]
    flipped = page[: start + 101] + ("A" if digit != "A" else "B") + page[start + 102 :]
    assert "The weights of lstm are damaged: " in said(flipped)
    cut = page[: start + 1000] + page[page.index("</script>", start) :]
    assert re.search(r"The weights of lstm are damaged: 7\d\d of [\d,]+ bytes can be read", said(cut))
    for length in (start - 40, start - 400):
        assert "The page ends too early" in said(page[:length])
