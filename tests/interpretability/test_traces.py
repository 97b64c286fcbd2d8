import dataclasses
import json
import math
import pathlib

import keras
import numpy as np
import pytest
from scipy.special import softmax

from keras_seq.interpretability.traces import (
    lstm_signals,
    most_variable_units,
    plot_trace,
    predictions_figure,
    trace_model,
)
from keras_seq.layers import LSTM, LayerNormLSTM, MultiHeadSelfAttention
from keras_seq.models import MODELS, LanguageModel
from keras_seq.reports.inspection import inspect_page
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking.summaries import label
from tests.conftest import randomized
from tests.reports.test_pages import Reader

RUN = pathlib.Path("run")
TEXT = 'It is "<b>" & so.\nNo'
TOKENIZER = CharacterTokenizer.from_text(TEXT + "xyz</script>")
IDS = TOKENIZER.encode(TEXT)
ATTENTIVE = {"embedding_dim": 8, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 8, "context_length": len(TEXT)}
SMALL = {
    "rnn": {"embedding_dim": 3, "units": 5, "num_layers": 2, "dropout": 0.5},
    "gru": {"embedding_dim": 3, "units": 5},
    "lstm": {"embedding_dim": 3, "units": 5, "num_layers": 2, "dropout": 0.5, "recurrent_dropout": 0.5},
    "mingru": {"embedding_dim": 4, "units": 5, "num_layers": 1, "feed_forward_dim": 4},
    "mamba": {"embedding_dim": 4, "num_layers": 1, "state_dim": 2},
    "transformer": ATTENTIVE,
    "gpt2": ATTENTIVE,
    "llama": {**ATTENTIVE, "num_heads": 4, "num_key_value_heads": 2},
}


def small(name, dtype=None, **changes):
    """A model with weights that are not those of its start, where much is zero."""
    model = MODELS[name](**SMALL[name], **changes).build_model(TOKENIZER.vocabulary_size, dtype=dtype)
    return randomized(model, seed=3, scale=0.7)


OFTEN = ("lstm", "mamba", "transformer")  # of each kind of signal


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[] if name in OFTEN else pytest.mark.rare) for name in SMALL]
)
def model(request):
    return small(request.param)


@pytest.fixture(scope="module")
def trace(model):
    return trace_model(model, TOKENIZER, IDS)


def data_of(page):
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


def test_the_page_says_what_the_model_expects(model, trace):
    expected = softmax(np.array(keras.ops.convert_to_numpy(model(IDS[None]))[0], "float64"), axis=-1)
    data = data_of(inspect_page(trace, RUN))
    assert "".join(data["tokens"]) == TEXT
    assert len(data["top"]) == len(TEXT) == len(data["next"]) + 1
    for t, row in enumerate(data["top"]):
        shown = pytest.approx([p for _, p in row], rel=1e-4)
        assert sorted(expected[t], reverse=True)[:5] == shown
        assert [expected[t, TOKENIZER.encode(token)[0]] for token, _ in row] == shown
    for t, (rank, p) in enumerate(data["next"]):
        assert p == pytest.approx(expected[t, IDS[t + 1]], rel=1e-4)
        assert rank == np.sum(expected[t] > expected[t, IDS[t + 1]])


@pytest.mark.parametrize("name", ["transformer", "gpt2", "llama"])
def test_the_attention_is_that_of_the_model_itself(name, monkeypatch):
    sinks = {"use_sinks": True} if name == "llama" else {}
    model, seen, attend = small(name, **sinks), [], MultiHeadSelfAttention.attend

    def spy(self, *args):
        y, weights = attend(self, *args)
        seen.append(keras.ops.convert_to_numpy(weights)[0])
        return y, weights

    with monkeypatch.context() as patch:
        patch.setattr(MultiHeadSelfAttention, "attend", spy)
        model(IDS[None])
    trace = trace_model(model, TOKENIZER, IDS)
    assert list(trace.attention) == ["block_0", "block_1"]
    assert trace.activations == {}
    assert not np.allclose(seen[0][0], seen[0][1], atol=0.01)  # the heads differ
    data = data_of(inspect_page(trace, RUN))
    for expected, maps, block in zip(seen, trace.attention.values(), data["attention"].values(), strict=True):
        np.testing.assert_allclose(maps, expected, atol=1e-6)
        sums = maps.sum(axis=-1)
        assert (sums < 0.999).any() if sinks else np.allclose(sums, 1, atol=1e-5)
        assert (sums < 1 + 1e-5).all()
        assert not np.triu(maps, 1).any()
        for head, rows in zip(expected, block, strict=True):
            for t, row in enumerate(rows):
                np.testing.assert_allclose(row, head[t, : t + 1], atol=6e-6)


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-6), ("mixed_bfloat16", 0.01)])
def test_the_signals_of_an_lstm_make_its_own_output(dtype, atol):
    model = small("lstm", dtype)
    trace = trace_model(model, TOKENIZER, IDS)
    assert list(trace.activations) == ["lstm_0", "lstm_1"]
    assert trace.attention == {}
    x = model.embedding(IDS[None])
    for layer in (block for block in model.blocks if isinstance(block, LSTM)):
        signals = trace.activations[layer.name]
        x, (_, c) = layer(x, return_state=True)
        y = keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))[0]
        np.testing.assert_allclose(signals["h"], y, atol=atol)
        np.testing.assert_allclose(signals["c"][-1], keras.ops.convert_to_numpy(c)[0], atol=3 * atol)
        before = np.vstack([np.zeros_like(signals["c"][:1]), signals["c"][:-1]])
        expected = signals["f"] * before + signals["i"] * signals["g"]
        np.testing.assert_allclose(signals["c"], expected, atol=1e-6, rtol=1e-5)
        assert all(0 < signals[gate].min() <= signals[gate].max() < 1 for gate in "ifo")
        assert np.abs(signals["g"]).max() <= 1


@pytest.mark.parametrize("name", ["lstm", "gru", "mamba"])
def test_the_signals_of_a_document_are_those_of_it_by_itself(name):
    model = small(name)
    model.document_token = first = IDS[3]
    ids = np.concatenate([[first], IDS[4:7], [first], IDS[7:11]])
    inside, alone = (trace_model(model, TOKENIZER, x).activations for x in (ids, ids[4:]))
    for layer, signals in alone.items():
        for letter, signal in signals.items():
            np.testing.assert_allclose(inside[layer][letter][4:], signal, atol=1e-5)


def test_the_signals_of_other_activations_make_the_output_too():
    lstm = LSTM(4, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True, name="lstm")
    size = TOKENIZER.vocabulary_size
    model = LanguageModel(keras.layers.Embedding(size, 3), [lstm], keras.layers.Dense(size))
    model.build((None, None))
    randomized(model, seed=3, scale=1.0)
    h = trace_model(model, TOKENIZER, IDS).activations["lstm"]["h"]
    np.testing.assert_allclose(h, keras.ops.convert_to_numpy(lstm(model.embedding(IDS[None])))[0], atol=1e-6)


def test_the_gates_are_those_worked_out_by_hand():
    """The numbers of docs/rnn-lstm.md, from the zero state."""
    layer = LSTM(2, return_sequences=True)
    layer.build((1, 1, 3))
    kernel = [[1, 0, -1, -2, 2, -1, 1, 0], [2, 1, -2, -1, 0, -2, 2, -1], [0, -1, 1, 2, 1, 0, 1, 2]]
    layer.set_weights([np.array(kernel), np.zeros((2, 8)), np.array([0, -1, 1, 1, 0, 0, 0, 0])])
    x = np.array([[[1.0, 2.0, -1.0]]], "float32")
    signals = lstm_signals(layer, x, layer(x))
    z = {"i": (5, 2), "f": (-5, -5), "g": (1, -5), "o": (4, -4)}
    for letter, values in z.items():
        squash = np.tanh if letter == "g" else lambda v: 1 / (1 + np.exp(-v))
        np.testing.assert_allclose(signals[letter][0], squash(np.array(values, "float32")), rtol=1e-5)


def test_the_page_has_the_signals(trace):
    data = data_of(inspect_page(trace, RUN))
    assert bool(data["attention"]) != bool(data["activations"])
    for name, signals in trace.activations.items():
        for letter, signal in signals.items():
            assert letter in data["signals"]
            np.testing.assert_allclose(data["activations"][name][letter], signal, atol=6e-4)
        assert data["mostVariable"][name] == most_variable_units(next(iter(signals.values())), 1)[0]


@pytest.mark.parametrize("name", ["rnn", "gru", "mingru", "mamba"])
def test_other_models_show_the_outputs_of_their_blocks(name):
    model = small(name)
    last = list(trace_model(model, TOKENIZER, IDS).activations.values())[-1]["y"]
    logits = keras.ops.convert_to_numpy(model.head(last[None]))
    np.testing.assert_allclose(logits, keras.ops.convert_to_numpy(model(IDS[None])), atol=1e-4)


def test_a_subclass_of_lstm_is_not_traced_by_its_equations():
    size, normed = TOKENIZER.vocabulary_size, LayerNormLSTM(4, name="normed", return_sequences=True)
    model = LanguageModel(keras.layers.Embedding(size, 3), [normed], keras.layers.Dense(size))
    assert list(trace_model(model, TOKENIZER, IDS).activations["normed"]) == ["y"]


def test_the_page_is_no_more_than_its_text_and_needs_nothing_from_elsewhere(model, trace):
    page = inspect_page(trace, pathlib.Path('run "<b>"'))
    read_back, plain = Reader(page), Reader(inspect_page(trace_model(model, TOKENIZER, IDS[:3]), RUN))
    assert "".join(read_back.tokens) == TEXT
    assert "http" not in page
    tags = {*plain.tags} - {"span"}
    assert [read_back.tags.count(tag) for tag in tags] == [plain.tags.count(tag) for tag in tags]
    assert "b" not in read_back.tags


def test_every_plot_shows_its_values(trace):
    names = []
    for name, figure in plot_trace(trace):
        names.append(name)
        images = [image for axes in figure.axes for image in axes.images]
        shown = [np.ma.filled(image.get_array(), np.nan) for image in images]
        if name.startswith("attention"):
            for array, head in zip(shown, trace.attention[name.removeprefix("attention_")], strict=True):
                np.testing.assert_array_equal(np.nan_to_num(array), head)
        elif name.startswith("activations"):
            signals = trace.activations[name.removeprefix("activations_")]
            units = most_variable_units(next(iter(signals.values())), 16)
            for array, signal in zip(shown, signals.values(), strict=True):
                np.testing.assert_array_equal(array, signal[:, units].T)
        else:
            array = np.concatenate(shown, axis=1)[:, : len(TEXT)]
            np.testing.assert_allclose(array[0], trace.probabilities.max(axis=-1))
            np.testing.assert_allclose(array.sum(axis=0), np.sort(trace.probabilities)[:, -5:].sum(axis=-1))
        ticks = [text.get_text() for axes in figure.axes for text in axes.get_xticklabels()]
        assert "·" in ticks
        assert "⏎" in ticks
    layers = [f"attention_{n}" for n in trace.attention] + [f"activations_{n}" for n in trace.activations]
    assert names == ["next", *layers]


def test_a_label_has_only_what_the_font_has():
    assert label(" \n\t$é") == "·⏎⇥$é"
    assert label("猫") == "□"


def test_a_certain_model_has_certain_predictions():
    model = small("gru")
    model.head.kernel.assign(np.zeros(model.head.kernel.shape))
    model.head.bias.assign(50.0 * (np.arange(TOKENIZER.vocabulary_size) == 3))
    trace = trace_model(model, TOKENIZER, IDS)
    (top, *_), (_, p) = trace.top_predictions()[0], trace.next_token_ranks()[0]
    assert top == (TOKENIZER.vocabulary[3], pytest.approx(1))
    assert p == pytest.approx(math.exp(-50), rel=1e-4)


def test_of_a_long_text_the_last_tokens_are_plotted_and_long_tokens_one_in_a_line(trace, monkeypatch):
    monkeypatch.setattr("keras_seq.interpretability.traces.MAX_PLOTTED", 3)
    for name, figure in plot_trace(trace):
        for axes in figure.axes:
            for image in axes.images:
                assert image.get_array().shape[1] <= 3, name
    long = dataclasses.replace(trace, tokens=("a" * 200,) * len(trace.tokens), decode=lambda ids: "b" * 200)
    assert len(predictions_figure(long).axes) >= len(trace.tokens)
