"""LoRA on dense, recurrent, minimal and Mamba matrices: only adapters change, and they merge."""

import keras
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import load_file, save_file

from keras_seq import layers, models
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import lora
from keras_seq.saving import load_untrusted_model, save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training.muon import muon_blocks
from tests.conftest import often

V, T = 11, 6
CONFIGS = {
    "rnn": models.RNNConfig(5, units=7),
    "gru": models.GRUConfig(5, units=7),
    "lstm": models.LSTMConfig(5, units=7, num_layers=2),
    "mingru": models.MinGRUConfig(6, num_layers=2),
    "minlstm": models.MinLSTMConfig(6, num_layers=1),
    "mamba": models.MambaConfig(6, num_layers=1),
    "xlstm": models.XLSTMConfig(8, num_layers=2),
    "llama": models.LlamaConfig(8, num_layers=2, num_heads=2, num_key_value_heads=1, context_length=T),
}
IDS = np.random.default_rng(0).integers(0, V, (2, T)).astype("int32")
each = often("name", [*CONFIGS], ("lstm",))


def logits_of(model):
    return ops.convert_to_numpy(model(IDS))


def values(model):
    return {w.path: ops.convert_to_numpy(w) for w in model.weights}


def train(model, steps=2):
    model.compile(
        keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True
    )
    model.fit(IDS, np.roll(IDS, -1, 1), epochs=steps, verbose=0, shuffle=False)


def changed_by_training(model):
    """Train, and return the paths of the weights that changed: all trainable ones, and no others."""
    before = values(model)
    train(model)
    changed = {path for path, value in values(model).items() if not np.array_equal(value, before[path])}
    assert changed == {w.path for w in model.trainable_weights}
    return changed


def untrained(model):
    return {weight.path for weight in model.non_trainable_weights}


def test_what_was_not_trained_before_is_not_trained_after():
    embedding, normalization = keras.layers.Embedding(V, 4), keras.layers.BatchNormalization()
    model = models.LanguageModel(embedding, [normalization, layers.Dense(4)], layers.Dense(V))
    model.build((None, None))
    embedding.trainable = False
    before = untrained(model)
    assert len(before) == 3
    lora.enable_lora(model, 2)
    lora.merge_lora(model)
    assert untrained(model) == before
    lora.set_trainable(model, ["*kernel"])
    lora.set_trainable(model, ["*"])
    assert untrained(model) == before
    model.head.kernel.trainable = False
    lora.set_trainable(model, ["*"])
    assert untrained(model) == before | {model.head.kernel.path}
    with pytest.raises(ValueError, match=r"\*moving_mean matches no weight that can be trained"):
        lora.set_trainable(model, ["*moving_mean"])


def test_a_model_that_was_compiled_with_additions_is_loaded_as_one_that_was_not(randomize, tmp_path):
    model = randomize(models.GatedDeltaNetConfig(8, num_layers=1, num_heads=2).build_model(V))
    lora.enable_lora(model, 2)
    train(model, 1)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert not loaded.compiled
    np.testing.assert_allclose(logits_of(loaded), logits_of(model), atol=1e-5)
    lora.merge_lora(model)
    train(model, 1)
    model.save(tmp_path / "merged.keras")
    assert keras.saving.load_model(tmp_path / "merged.keras").compiled


@each
def test_adapters_alone_change_and_merge(randomize, tmp_path, name):
    model = randomize(CONFIGS[name].build_model(V))
    save_model(model, tmp_path / "base.keras")
    before, num_weights = logits_of(model), model.count_params()
    trained = lora.enable_lora(model, 2, 3.0)
    np.testing.assert_array_equal(logits_of(model), before)  # B = 0
    assert trained == sum(int(np.prod(w.shape)) for w in model.trainable_weights) == model.count_params() - num_weights
    assert all(lora.is_adapter(w) and not muon_blocks(w) for w in model.trainable_weights)
    changed_by_training(model)
    after = logits_of(model)
    assert np.abs(after - before).max() > 1e-3
    lora.save_adapters(model, tmp_path / "adapters.safetensors")
    assert sum(a.size for a in load_file(tmp_path / "adapters.safetensors").values()) == trained
    save_model(model, tmp_path / "model.keras")
    merged = load_untrusted_model(tmp_path / "model.keras")  # a plain model
    assert merged.count_params() == num_weights == sum(int(np.prod(w.shape)) for w in merged.trainable_weights)
    np.testing.assert_allclose(logits_of(merged), after, rtol=1e-5, atol=1e-5)
    again = load_untrusted_model(tmp_path / "base.keras")
    lora.load_adapters(again, tmp_path / "adapters.safetensors")
    np.testing.assert_array_equal(logits_of(again), after)
    lora.merge_lora(model)
    np.testing.assert_allclose(logits_of(model), after, rtol=1e-5, atol=1e-5)
    assert [w.path for w in model.weights] == [w.path for w in CONFIGS[name].build_model(V).weights]
    assert all(w.trainable for w in model.weights if "seed" not in w.path)


def test_the_addition_is_alpha_over_r_a_b(randomize):
    model = randomize(CONFIGS["lstm"].build_model(V))
    layer = model.blocks[0]
    lora.enable_lora(model, 3, 6.0)
    randomize(model)
    kernel, a, b = (
        ops.convert_to_numpy(getattr(layer, f"{name}")).astype("float64")
        for name in ("_recurrent_kernel", "recurrent_kernel_lora_a", "recurrent_kernel_lora_b")
    )
    np.testing.assert_allclose(ops.convert_to_numpy(layer.recurrent_kernel), kernel + 2 * a @ b, rtol=1e-5, atol=1e-6)


def test_patterns_choose_layers():
    model = CONFIGS["llama"].build_model(V)
    lora.enable_lora(model, 1, patterns=["block_1/*"])
    paths = {w.path for w in model.trainable_weights}
    assert paths
    assert all("/block_1/" in f"/{path}" for path in paths)
    model = models.TransformerConfig(8, num_layers=1, num_heads=2, context_length=T, tie_embeddings=False).build_model(
        V
    )
    lora.enable_lora(model, 2)
    assert not any("head/" in w.path for w in model.trainable_weights)
    lora.merge_lora(model)
    assert lora.enable_lora(model, 2, patterns=["head"]) == 2 * (8 + V)


def test_patterns_choose_weights(randomize):
    model = randomize(CONFIGS["llama"].build_model(V))
    trained = lora.set_trainable(model, ["*normalization*", "block_0/feed_forward/*/kernel"])
    changed = changed_by_training(model)
    assert trained == sum(int(np.prod(w.shape)) for w in model.trainable_weights) < model.count_params()
    assert len([path for path in changed if "normalization" in path]) == 5
    assert len([path for path in changed if "kernel" in path]) == 3
    with pytest.raises(ValueError, match=r"'block_7\*' matches no weight; expected a pattern of paths such as"):
        lora.set_trainable(model, ["block_7*"])


def test_modules_to_save_are_trained_and_saved_with_the_adapters(randomize, tmp_path):
    model = randomize(CONFIGS["lstm"].build_model(V))
    save_model(model, tmp_path / "base.keras")
    before, plain = logits_of(model), lora.enable_lora(CONFIGS["lstm"].build_model(V), 2)
    assert lora.enable_lora(model, 2, modules_to_save=["*bias*", "embedding*"]) == plain + 2 * 4 * 7 + V + V * 5
    np.testing.assert_array_equal(logits_of(model), before)
    changed_by_training(model)
    lora.save_adapters(model, tmp_path / "adapters.safetensors")
    again = load_untrusted_model(tmp_path / "base.keras")
    lora.load_adapters(again, tmp_path / "adapters.safetensors")
    np.testing.assert_array_equal(logits_of(again), logits_of(model))
    assert again.count_params() == model.count_params()
    assert len(again.trainable_weights) == len(model.trainable_weights)


def test_additions_of_two_calls_are_trained_and_merged_to_what_was_trained_before(tmp_path):
    model = CONFIGS["lstm"].build_model(V)
    lora.set_trainable(model, ["*bias"])
    before = untrained(model)
    lora.enable_lora(model, 2, 2, patterns=["lstm_0"])
    lora.enable_lora(model, 2, 8, ["lstm_1"], modules_to_save=["lstm_0/*_lora_a", "head/bias"])
    assert len(model.trainable_weights) == 9
    with pytest.raises(ValueError, match=r"\[\(2, 2\), \(2, 8\)\]; a file holds those of one"):
        lora.save_adapters(model, tmp_path / "x.safetensors")
    lora.merge_lora(model)
    assert untrained(model) == before


def test_a_dense_layer_can_be_made_with_lora(randomize):
    layer = layers.Dense(3, lora_rank=2, lora_alpha=4)
    x = np.ones((1, 5), "float32")
    layer(x)
    assert len(randomize(layer).trainable_weights) == 3  # A, B and the bias
    kernel, bias, a, b = (
        ops.convert_to_numpy(w) for w in (layer._kernel, layer.bias, *layer.matrices["kernel"].lora_variables)
    )
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), x @ (kernel + 2 * a @ b) + bias, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "mixed_bfloat16"])
def test_adapters_of_every_precision_come_back(randomize, tmp_path, dtype):
    model, again = (randomize(CONFIGS["lstm"].build_model(V, dtype=dtype)) for _ in range(2))
    lora.enable_lora(model, 2, modules_to_save=["*bias*"])
    randomize(model, seed=1)
    for weight, value in zip(again.weights, (w for w in model.weights if not lora.is_adapter(w)), strict=True):
        weight.assign(value)
    lora.save_adapters(model, tmp_path / "adapters.safetensors")
    lora.load_adapters(again, tmp_path / "adapters.safetensors")
    assert values(again).keys() == values(model).keys()
    for path, value in values(again).items():
        np.testing.assert_array_equal(value, values(model)[path])


def test_additions_are_in_float32_with_the_rules_of_the_matrix():
    layer = layers.Dense(4, dtype="bfloat16", kernel_regularizer="l2")
    layer.build((None, 8))
    layer.enable_lora(2, a_initializer="ones", b_initializer="ones")
    assert {w.dtype for w in layer.trainable_weights if lora.is_adapter(w)} == {"float32"}
    assert float(sum(layer.losses)) == pytest.approx(0.01 * (8 * 2 + 2 * 4))
    layer = layers.Dense(4, kernel_constraint="non_neg")
    layer.build((None, 8))
    with pytest.raises(ValueError, match="has a constraint of its kernel; expected none with LoRA"):
        layer.enable_lora(2)
    assert layer.matrix_mode is None


def test_mistakes_are_named(tmp_path):
    model = CONFIGS["lstm"].build_model(V)
    with pytest.raises(ValueError, match="rank=0"):
        lora.enable_lora(model, 0)
    with pytest.raises(ValueError, match="lora_alpha=-1"):
        lora.enable_lora(model, 1, -1)
    for options in ({"patterns": "block_1/*"}, {"modules_to_save": "*bias*"}):
        with pytest.raises(ValueError, match="expected a list of patterns"):
            lora.enable_lora(model, 1, **options)
    with pytest.raises(ValueError, match="expected a list of patterns"):
        lora.set_trainable(model, "*")
    with pytest.raises(ValueError, match=r"attention\* matches no layer with a matrix; expected a pattern of .*lstm"):
        lora.enable_lora(model, 1, patterns=["attention*"])
    with pytest.raises(ValueError, match=r"lstm.*kernel is in modules_to_save and gets an addition"):
        lora.enable_lora(model, 1, modules_to_save=["lstm*"])
    with pytest.raises(ValueError, match="'norm' matches no weight"):
        lora.enable_lora(model, 1, modules_to_save=["norm"])
    with pytest.raises(ValueError, match="has no adapters"):
        lora.save_adapters(model, tmp_path / "x.safetensors")
    assert all(w.trainable for w in model.weights if "seed" not in w.path)
    blocks = [
        layers.LSTM(8, return_sequences=True, name="plain"),
        layers.LSTM(8, return_sequences=True, kernel_constraint="max_norm", name="constrained"),
    ]
    constrained = models.LanguageModel(keras.layers.Embedding(V, 8), blocks, layers.Dense(V))
    constrained(np.zeros((1, 2), "int32"))
    before = [weight.trainable for weight in constrained.weights]
    with pytest.raises(ValueError, match="has a constraint of its kernel"):
        lora.enable_lora(constrained, 1)
    blocks[0].trainable = False
    with pytest.raises(ValueError, match="matches no weight that can be trained"):
        lora.set_trainable(constrained, ["*plain*"])
    blocks[0].trainable = True
    assert [weight.trainable for weight in constrained.weights] == before
    assert len(before) == len(constrained.weights)
    lora.enable_lora(model, 1)
    with pytest.raises(ValueError, match="has LoRA already"):
        lora.enable_lora(model, 1)
    lora.save_adapters(model, tmp_path / "lstm.safetensors")
    other = CONFIGS["llama"].build_model(V)
    with pytest.raises(lora.AdapterError, match=r"has adapters of .*lstm"):
        lora.load_adapters(other, tmp_path / "lstm.safetensors")
    wider = models.LSTMConfig(5, units=8, num_layers=2).build_model(V)
    with pytest.raises(lora.AdapterError, match=r"holds float32 \[.*; expected float32 \["):
        lora.load_adapters(wider, tmp_path / "lstm.safetensors")
    arrays = load_file(tmp_path / "lstm.safetensors")
    save_file(dict(list(arrays.items())[1:]), tmp_path / "less", metadata={"lora_rank": "1", "lora_alpha": "1"})
    save_file(arrays, tmp_path / "no-rank")
    (tmp_path / "cut").write_bytes((tmp_path / "lstm.safetensors").read_bytes()[:-1])
    for name in ("less", "no-rank", "cut", "missing"):
        with pytest.raises(lora.AdapterError, match=r"not a file of adapters|holds nothing"):
            lora.load_adapters(CONFIGS["lstm"].build_model(V), tmp_path / name)
    assert not any(lora.is_adapter(w) for w in wider.weights)


@pytest.mark.filterwarnings("ignore:.*int8")
def test_what_was_compiled_before_scores_and_samples_with_the_new_matrices(randomize):
    """Scores and texts of a model that was used before adapters, merging and quantization are those of a new one."""
    tokenizer = CharacterTokenizer("abcdefghij")
    model = randomize(models.LlamaConfig(8, num_layers=1, num_heads=2, context_length=T).build_model(10), scale=0.8)
    ids = np.arange(40) * 7 % 10
    evaluator, generator = Evaluator(model), TextGenerator(model, tokenizer)

    def loss_and_text(evaluator, generator):
        return evaluator.chunked_loss(ids, T).mean, generator("abc", 20, seed=1)

    results = [loss_and_text(evaluator, generator)]
    for change in (
        lambda: (lora.enable_lora(model, 2), randomize(model, 5)),
        lambda: (lora.merge_lora(model), model.quantize("int4")),
    ):
        change()
        results.append(loss_and_text(evaluator, generator))
        assert results[-1] == pytest.approx(loss_and_text(Evaluator(model), TextGenerator(model, tokenizer)))
    assert results[0] != results[1]


@often("name", ["lstm", "llama"], ["lstm"])
def test_weights_that_were_written_with_adapters_are_read_again(tmp_path, randomize, name):
    model = randomize(CONFIGS[name].build_model(V))
    model.save_weights(tmp_path / "base.weights.h5")
    base = logits_of(model)
    lora.enable_lora(model, 2)
    randomize(model, 5)
    expected = logits_of(model)
    model.save_weights(tmp_path / "tuned.weights.h5")
    model.load_weights(tmp_path / "base.weights.h5")
    np.testing.assert_allclose(logits_of(model), base, atol=1e-5)
    model.load_weights(tmp_path / "tuned.weights.h5")
    np.testing.assert_allclose(logits_of(model), expected, atol=1e-5)
