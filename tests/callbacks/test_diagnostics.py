import keras
import numpy as np
import pytest
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from keras_seq import generate
from keras_seq.callbacks import (
    AttentionMaps,
    EmbeddingProjector,
    GateSaturation,
    LossByPosition,
    Profiler,
    TextSamples,
    TokenTensorBoard,
    diagnostics,
)
from keras_seq.callbacks.gate_saturation import gate_values
from keras_seq.interpretability.activations import attention_weights
from keras_seq.layers import LSTM, Stateful, TransformerBlock
from tests.callbacks import diagnostics_fit
from tests.callbacks.conftest import IDS, LENGTH, MODELS, VOCABULARY
from tests.processes import without_tensorflow

TOKENS = 2 * LENGTH  # of a step of `own_fit`
eagerly = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def mixed():
    """Somebody's own functional model with layers of ours."""
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY.vocabulary_size, 4)(ids)
    x = LSTM(4, name="memory", return_sequences=True)(x)
    x = TransformerBlock(num_heads=2, feed_forward_dim=8, causal=True, name="block")(x)
    return keras.Model(ids, keras.layers.Dense(VOCABULARY.vocabulary_size)(x), name="mixed")


def test_in_a_fit_of_ones_own_all_stands_on_the_axis_of_tokens(mixed, rows, own_fit, events, tmp_path):
    options = {"log_dir": tmp_path, "tokens_per_step": TOKENS}
    history = own_fit(
        mixed,
        TokenTensorBoard(tmp_path, tokens_per_step=TOKENS),
        LossByPosition(IDS, LENGTH, **options),
        AttentionMaps(rows, **options),
        GateSaturation(rows, **options),
    )
    written, epochs = events(tmp_path), [3 * TOKENS, 6 * TOKENS]
    expected = {
        "Loss/training": "scalars",
        "Validation/loss_by_position/0": "scalars",
        "Validation/loss_by_position": "images",
        "diagnostics/attention/block": "images",
        "diagnostics/attention_entropy/block": "histograms",
        "diagnostics/attention_entropy_mean/block": "scalars",
        "diagnostics/gates/memory/forget": "histograms",
        "diagnostics/gate_saturation/open/memory/forget": "scalars",
    }
    for tag, plugin in expected.items():
        assert (written[tag][0], [*written[tag][1]]) == (plugin, epochs), tag
    np.testing.assert_allclose([*written["Loss/training"][1].values()], history["loss"], rtol=1e-6)


def test_every_so_many_steps_is_counted_by_the_optimizer(rows, own_fit, events, tmp_path):
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    own_fit(model, GateSaturation(rows, log_dir=tmp_path, update_freq=2))
    assert [*events(tmp_path)["diagnostics/gates/lstm_0/input"][1]] == [2, 4, 6]


def test_steps_that_run_without_coming_back_are_not_missed(rows, events, tmp_path):
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, steps_per_execution=3, jit_compile=False)
    x = np.tile(rows, (5, 1))
    model.fit(x, x, batch_size=2, verbose=0, callbacks=[GateSaturation(rows, log_dir=tmp_path, update_freq=2)])
    assert [*events(tmp_path)["diagnostics/gates/lstm_0/input"][1]] == [3, 6, 9, 10]  # 10 steps, three at a time


@pytest.mark.parametrize(
    ("make", "lacks"),
    [
        (lambda rows, **options: AttentionMaps(rows, **options), "attention layer"),
        (lambda rows, **options: GateSaturation(rows, **options), "LSTM, GRU, MinGRU or MinLSTM"),
    ],
)
def test_what_a_model_does_not_have_is_said_once_and_stops_nothing(make, lacks, plain, rows, own_fit, tmp_path, capsys):
    diagnostic = make(rows, log_dir=tmp_path)
    own_fit(plain, diagnostic)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{type(diagnostic).__name__} shows nothing of plain, which has no ")
    assert lacks in printed
    assert printed.count("\n") == 1
    assert not [*tmp_path.iterdir()]
    summaries = diagnostic.compute_summaries(plain)  # among the diagnostics of a comparison it says nothing
    assert (summaries.scalars, summaries.texts, summaries.images, summaries.histograms) == ({}, {}, {}, {})
    assert capsys.readouterr().out == ""


def test_a_model_inside_the_one_that_is_fit_can_be_examined(rows, events, tmp_path):
    inner = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    ids = keras.Input((LENGTH,), batch_size=2, dtype="int32")
    outer = keras.Model(ids, Stateful(inner, batch_size=2)(ids))
    outer.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    diagnostic = TextSamples(VOCABULARY, ["To "], max_new_tokens=5, log_dir=tmp_path, model=inner)
    outer.fit(rows, rows, batch_size=2, verbose=0, callbacks=[diagnostic])
    plugin, texts = events(tmp_path)["sample/To·"]
    assert (plugin, [*texts]) == ("text", [2])
    assert texts[2].decode() == f"    {generate(inner, VOCABULARY, 'To ', 5, temperature=0.8)}".replace("\n", "\n    ")


def test_without_a_folder_a_fit_is_refused(plain, rows, own_fit):
    with pytest.raises(ValueError, match="GateSaturation: log_dir=None; expected a folder"):
        own_fit(plain, GateSaturation(rows))


@pytest.mark.parametrize("options", [{"update_freq": 0}, {"tokens_per_step": 0}])
def test_numbers_below_one_are_refused(rows, options):
    (name,) = options
    with pytest.raises(ValueError, match=f"AttentionMaps: {name}=0; expected an integer of at least 1"):
        AttentionMaps(rows, **options)
    with pytest.raises(ValueError, match="tokens_per_step=0"):
        TokenTensorBoard("nowhere", tokens_per_step=0)


MAKERS = {
    "LossByPosition": lambda rows, **options: LossByPosition(IDS, LENGTH, **options),
    "GateSaturation": lambda rows, **options: GateSaturation(rows, **options),
    "AttentionMaps": lambda rows, **options: AttentionMaps(rows, **options),
    "TextSamples": lambda rows, **options: TextSamples(VOCABULARY, ["To "], max_new_tokens=3, **options),
    "EmbeddingProjector": lambda rows, **options: EmbeddingProjector(VOCABULARY, **options),
}


def stateful_and_inner(rows):
    """Return a model of ids and a reset mask, and one from ids to logits of the same layers."""
    embedding = keras.layers.Embedding(VOCABULARY.vocabulary_size, 4, name="embedding")
    lstm, head = LSTM(4, name="lstm", return_sequences=True), keras.layers.Dense(VOCABULARY.vocabulary_size)
    block = TransformerBlock(num_heads=2, feed_forward_dim=8, causal=True, name="block")
    ids = keras.Input((LENGTH,), len(rows), dtype="int32", name="ids")
    reset_mask = keras.Input((), len(rows), dtype="bool", name="reset_mask")
    x = Stateful(lstm, batch_size=len(rows))(embedding(ids), reset_mask)
    outer = keras.Model([ids, reset_mask], head(block(x)), name="outer")
    more = keras.Input((None,), dtype="int32")
    return outer, keras.Model(more, head(block(lstm(embedding(more)))), name="inner")


def fit_stateful(model, rows, *callbacks):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    inputs = [rows, np.ones(len(rows), bool)]
    model.fit(inputs, rows, batch_size=len(rows), verbose=0, shuffle=False, callbacks=[*callbacks])


@eagerly
@pytest.mark.filterwarnings("ignore:inner reads the whole text again")
def test_a_model_of_two_inputs_is_examined_by_an_inner_model_or_said_once(rows, tmp_path, capsys):
    outer, inner = stateful_and_inner(rows)
    fit_stateful(outer, rows, *(make(rows, log_dir=tmp_path / "outer" / name) for name, make in MAKERS.items()))
    said = capsys.readouterr().out.splitlines()
    for name, line in zip([name for name in MAKERS if name != "EmbeddingProjector"], said, strict=True):
        assert line.startswith(
            f"{name} shows nothing of outer, which has no call on 1 input: it takes ids, reset_mask."
        )
        assert "as model=" in line
    assert [path.name for path in (tmp_path / "outer").iterdir()] == ["EmbeddingProjector"]  # it needs no call
    folder = tmp_path / "inner"
    fit_stateful(outer, rows, *(make(rows, log_dir=folder / name, model=inner) for name, make in MAKERS.items()))
    assert capsys.readouterr().out == ""
    assert all([*(folder / name).iterdir()] for name in MAKERS)


@eagerly
def test_what_cannot_be_called_is_said_before_the_first_step(rows, tmp_path):
    class Pair(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [keras.layers.Embedding(VOCABULARY.vocabulary_size, 4), LSTM(4, return_sequences=True)]
            self.parts += [TransformerBlock(2, 8, causal=True), keras.layers.Dense(VOCABULARY.vocabulary_size)]

        def call(self, inputs):
            x, _ = inputs[0], inputs[1][:, None]
            for part in self.parts:
                x = part(x)
            return x

    model, steps = Pair(), keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: pytest.fail("a step"))
    fit_stateful(model, rows)
    for name in ("LossByPosition", "GateSaturation", "AttentionMaps"):
        with pytest.raises(Exception, match=r".+") as raised:  # each backend has words of its own
            fit_stateful(model, rows, MAKERS[name](rows, log_dir=tmp_path), steps)
        assert f"{name} calls {model.name} by itself" in "".join(raised.value.__notes__)


UNBUILT = pytest.mark.filterwarnings(r"ignore:`build\(\)` was called on layer")  # of layers that are never called


class Shared(keras.Model):
    """Layers that are called twice, and the same kinds that are never called."""

    def __init__(self):
        super().__init__(name="shared")
        self.embedding = keras.layers.Embedding(VOCABULARY.vocabulary_size, 4)
        self.lstm, self.unused = (LSTM(4, name=name, return_sequences=True) for name in ("lstm", "unused"))
        self.keras_gru, self.unused_gru = (
            keras.layers.GRU(4, name=name, return_sequences=True) for name in ("keras_gru", "unused_gru")
        )
        self.block, self.unused_block = (
            TransformerBlock(2, 8, causal=True, name=name) for name in ("block", "unused_block")
        )
        self.head = keras.layers.Dense(VOCABULARY.vocabulary_size)

    def call(self, ids):
        x = self.keras_gru(self.lstm(self.embedding(ids)))
        x = self.keras_gru(self.lstm(x[:, :3])) if ids.shape[0] == 1 else self.keras_gru(self.lstm(x))
        return self.head(self.block(self.block(x)))


@UNBUILT
def test_all_calls_of_a_layer_are_shown_and_one_that_is_not_called_is_left_out(rows):
    model = Shared()
    shown = {name: gates["output" if name == "lstm" else "reset"] for name, gates in gate_values(model, rows).items()}
    assert {name: values.shape for name, values in shown.items()} == {
        name: (2 * len(rows), LENGTH, 4) for name in ("lstm", "keras_gru")
    }
    assert [*attention_weights(Shared(), rows)] == ["block", "block/call_2"]
    first = gate_values(keras.Sequential([model.embedding, model.lstm]), rows)["lstm"]["output"]
    np.testing.assert_allclose(shown["lstm"][: len(rows)], first, atol=1e-6)
    assert np.abs(shown["lstm"][len(rows) :] - first).max() > 1e-3
    unequal = gate_values(model, rows[:1])["lstm"]["output"]
    assert unequal.shape == (1, LENGTH + 3, 4)
    assert GateSaturation(rows).compute_summaries(model).scalars
    assert [*AttentionMaps(rows).compute_summaries(model).images] == ["attention/block", "attention/block/call_2"]


@UNBUILT
def test_gates_of_which_none_is_called_are_said_once(rows, own_fit, tmp_path, capsys):
    class Unused(Shared):
        def call(self, ids):
            return self.head(self.embedding(ids))

    own_fit(Unused(), GateSaturation(rows, log_dir=tmp_path))
    assert (
        capsys.readouterr().out
        == "GateSaturation shows nothing of shared, whose call on x calls none of its gated layers.\n"
    )


def test_samples_are_what_generate_writes(randomize):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size))
    options = {"temperature": 0.5, "seed": 3}
    texts = TextSamples(VOCABULARY, ["To be", "\n"], max_new_tokens=12, **options).compute_summaries(model).texts
    assert texts.keys() == {"sample/To·be", "sample/⏎"}
    expected = generate(model, VOCABULARY, ["To be", "\n"], 12, **options)
    assert [*texts.values()] == expected
    assert [len(text) for text in expected] == [17, 13]


def test_a_prompt_that_the_tokenizer_does_not_know_is_an_error():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    with pytest.raises(ValueError, match="猫"):
        TextSamples(VOCABULARY, "猫").compute_summaries(model)


@pytest.mark.filterwarnings("ignore:.*the slow way")
def test_any_causal_model_writes_and_what_gives_no_logits_is_said(plain):
    assert len(TextSamples(VOCABULARY, ["To"], max_new_tokens=3).compute_summaries(plain).texts["sample/To"]) == 5
    pooled = keras.Sequential(
        [keras.layers.Embedding(VOCABULARY.vocabulary_size, 3), keras.layers.GlobalAveragePooling1D()]
    )
    pooled.build((None, 4))
    assert TextSamples(VOCABULARY, ["To"]).missing_requirement(pooled).startswith("step(ids, state) and no logits")


class Subclassed(keras.Model):
    """Embeddings for logits, or their mean."""

    def __init__(self, size, is_pooled):
        super().__init__()
        self.embedding, self.is_pooled = keras.layers.Embedding(VOCABULARY.vocabulary_size, size), is_pooled

    def call(self, ids):
        return keras.ops.mean(self.embedding(ids), axis=1) if self.is_pooled else self.embedding(ids)


@pytest.mark.filterwarnings("ignore:.*the slow way")
def test_a_subclassed_model_writes_and_one_without_logits_says_why_not():
    model, pooled = Subclassed(VOCABULARY.vocabulary_size, is_pooled=False), Subclassed(3, is_pooled=True)
    assert len(TextSamples(VOCABULARY, ["To"], max_new_tokens=3).compute_summaries(model).texts["sample/To"]) == 5
    with pytest.raises(ValueError, match=r"maps ids \(1, 16\) to \(1, 3\)"):
        TextSamples(VOCABULARY, ["To"]).missing_requirement(pooled)


@pytest.fixture
def fit_dense():
    def fit(steps, callback):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
        model.fit(np.ones((2 * steps, 4)), np.ones((2 * steps, 3)), batch_size=2, verbose=0, callbacks=[callback])

    return fit


def test_the_trace_names_the_operations_of_a_step(fit_dense, tmp_path):
    fit_dense(3, Profiler(tmp_path))
    (trace,) = (tmp_path / "plugins" / "profile").glob("*/*.xplane.pb")
    names = {
        metadata.name
        for plane in XSpace.FromString(trace.read_bytes()).planes
        for metadata in plane.event_metadata.values()
    }
    assert any("MatMul" in name for name in names)


@pytest.mark.parametrize("installed", [True, False])
def test_it_says_that_one_step_has_no_trace_and_what_to_install(fit_dense, tmp_path, capsys, monkeypatch, installed):
    monkeypatch.setattr(diagnostics, "PROFILE_PLUGIN", "json" if installed else "no_such_plugin")
    fit_dense(1, Profiler(tmp_path))
    said = capsys.readouterr().out
    assert "Profiler traced nothing" in said
    assert ("pip install tensorboard-plugin-profile." in said) is not installed
    assert not [*tmp_path.iterdir()]


@pytest.mark.rare
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_another_backend_writes_what_tensorflow_writes(backend, events, tmp_path):
    pytest.importorskip(backend)
    diagnostics_fit.fit(tmp_path / "tensorflow")
    done = without_tensorflow(tmp_path, backend, "-m", "tests.callbacks.diagnostics_fit", tmp_path / backend)
    assert done.returncode == 0, done.stderr
    expected, written = events(tmp_path / "tensorflow"), events(tmp_path / backend)
    assert {tag: (plugin, [*points]) for tag, (plugin, points) in written.items()} == {
        tag: (plugin, [*points]) for tag, (plugin, points) in expected.items()
    }
    assert {plugin for plugin, _ in written.values()} == {
        *("scalars", "histograms", "images", "text", "hparams", "custom_scalars")
    }
    gates = {tag: points for tag, (_, points) in expected.items() if tag.startswith("diagnostics/gates/")}
    assert {tag.split("/")[2] for tag in gates} == {"gru", "keras_lstm"}
    assert [*gates["diagnostics/gates/gru/update"]] == [2, 4, 6, 8, 10]
    for tag, (plugin, points) in expected.items():
        for step, value in points.items():
            if plugin == "scalars":
                assert written[tag][1][step] == pytest.approx(value, rel=1e-3, abs=1e-5), (tag, step)
            elif plugin == "histograms":
                edges = [buckets[:, :2] for buckets in (written[tag][1][step], value)]
                np.testing.assert_allclose(*edges, rtol=1e-3, atol=1e-5, err_msg=tag)
    vectors = [np.loadtxt(tmp_path / name / "embedding.tsv") for name in (backend, "tensorflow")]
    np.testing.assert_allclose(*vectors, rtol=1e-3, atol=1e-5)


def test_the_profiler_refuses_another_backend(monkeypatch, tmp_path):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"the backend is 'jax'; expected 'tensorflow', or use jax\.profiler"):
        Profiler(tmp_path)
