"""LoRA here is LoRA of `peft`: the same logits and gradients from the same adapters, and the same merged model."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import keras
import torch
import transformers
from keras import ops

from keras_seq import pretrained
from keras_seq.models.lora import enable_lora, merge_lora
from tests.pretrained.random_configs import CONFIGS, random_model
from tests.pretrained.test_load import assert_same, some_ids

PARTS = {
    **{"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"},
    **{"gate_proj": "feed_forward/gate", "up_proj": "feed_forward/hidden", "down_proj": "feed_forward/output"},
}


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_logits_gradients_and_the_merged_model_equal_those_of_peft(tmp_path):
    peft = pytest.importorskip("peft")  # here, as it takes seconds and no other test needs it
    theirs = random_model(*CONFIGS["llama-gqa"])
    theirs.save_pretrained(tmp_path / "in")
    model = pretrained.load(tmp_path / "in").model
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=[*PARTS], lora_dropout=0.0)
    theirs = peft.get_peft_model(theirs, config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "lora_" in name:
                weight.copy_(0.2 * torch.randn(weight.shape, generator=generator))
    ids = some_ids(41)
    loss = theirs(torch.tensor(ids), labels=torch.tensor(ids.astype("int64"))).loss
    loss.backward()
    assert enable_lora(model, 3, 7) == theirs.get_nb_trainable_parameters()[0]
    adapters = {w.path.removeprefix(f"{model.name}/"): w for w in model.trainable_weights}
    gradients = {}
    for name, weight in theirs.named_parameters():
        if "lora_" in name:
            words = name.split(".")
            n, part, letter = words[words.index("layers") + 1], words[-4], words[-3][-1].lower()
            prefix = "" if PARTS[part].startswith("feed") else "self_attention/"
            path = f"block_{n}/{prefix}{PARTS[part]}/kernel_lora_{letter}"
            adapters[path].assign(weight.detach().numpy().T)
            gradients[path] = weight.grad.numpy().T
    assert gradients.keys() == adapters.keys()
    reference = theirs(torch.tensor(ids)).logits
    assert_same(model(ids), reference)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            logits = model(ids[:, :-1])
            ours = ops.mean(ops.sparse_categorical_crossentropy(ids[:, 1:], logits, from_logits=True))
        values = tape.gradient(ours, [adapters[path].value for path in gradients])
        for value, expected in zip(values, gradients.values(), strict=True):
            np.testing.assert_allclose(value.numpy(), expected, rtol=1e-3, atol=2e-5 * np.abs(expected).max())

    pretrained.save(model, tmp_path / "out")
    auto = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    merged = theirs.merge_and_unload()
    for (name, weight), expected in zip(auto.named_parameters(), merged.parameters(), strict=True):
        np.testing.assert_allclose(weight.detach(), expected.detach(), rtol=1e-5, atol=1e-6, err_msg=name)
    merge_lora(model)
    assert_same(model(ids), reference)
