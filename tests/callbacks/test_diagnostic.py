import keras
import numpy as np
import pytest

from keras_seq import generate
from keras_seq.callbacks import AttentionMaps, GateSaturation, LossByPosition, TextSamples, TokenTensorBoard
from keras_seq.layers import LSTM, Stateful, TransformerBlock
from tests.callbacks.conftest import IDS, LENGTH, MODELS, VOCABULARY

TOKENS = 2 * LENGTH  # of a step of `own_fit`


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


def test_every_so_many_steps_is_counted_by_the_optimizer(mixed, rows, own_fit, events, tmp_path):
    own_fit(mixed, GateSaturation(rows, log_dir=tmp_path, update_freq=2))
    assert [*events(tmp_path)["diagnostics/gates/memory/input"][1]] == [2, 4, 6]


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
