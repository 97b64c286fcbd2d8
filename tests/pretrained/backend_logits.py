"""Load folders on any backend and save them again: `python -m tests.pretrained.backend_logits FOLDER OUT`."""

import pathlib
import sys

import numpy as np
from keras import ops

from keras_seq import pretrained
from keras_seq.models import (
    EncoderDecoder,
    GPT2Config,
    LanguageModel,
    LlamaConfig,
    Mamba2Config,
    MambaConfig,
    ModernBertConfig,
    Qwen35Config,
    RecurrentGemmaConfig,
    T5Config,
    masked_lm,
)

V = 41
BUILT = {
    "gpt2": GPT2Config(16, num_layers=2, num_heads=2, context_length=32, dropout=0.1),
    "llama": LlamaConfig(16, num_layers=2, num_heads=4, num_key_value_heads=2, feed_forward_dim=24, context_length=32),
    "mamba": MambaConfig(16, num_layers=2, state_dim=4),
    "mamba2": Mamba2Config(16, num_layers=2, state_dim=4),
    "gemma": RecurrentGemmaConfig(16, num_layers=3, feed_forward_dim=24, sliding_window=7),
    "t5": T5Config(16, 2, 3, 2, 5, 24, 8, 12, activation="geglu_tanh", tie_embeddings=False, scale_logits=False),
    "qwen3_5": Qwen35Config(16, num_layers=2, pattern="da", feed_forward_dim=24, key_dim=8, context_length=32),
}
ENCODERS = {"modernbert": ModernBertConfig(16, 4, 2, 24, 32, sliding_window=3, pad_token_id=7)}
IDS = np.random.default_rng(0).integers(0, V, (2, 13)).astype("int32")


def models() -> dict:
    """The models by name, those of encoders with a head."""
    language_models = {name: config.build_model(V) for name, config in BUILT.items()}
    return language_models | {name: masked_lm(config.build_model(V)) for name, config in ENCODERS.items()}


def logits(model) -> np.ndarray:
    """Logits of a whole pass and, behind it, those of a step after it, [2, 13, V]; an encoder's of one pass.

    Those of T5 are of steps from the first on.
    """
    if isinstance(model, EncoderDecoder):
        whole, state = model({"encoder_token_ids": IDS, "decoder_token_ids": IDS}), model.get_initial_state(IDS, 13)
        for t in range(13):
            step, state = model.step(IDS[:, t : t + 1], state)
        return np.concatenate([ops.convert_to_numpy(whole)[:, :-1], ops.convert_to_numpy(step)[:, None]], axis=1)
    if not isinstance(model, LanguageModel):
        return ops.convert_to_numpy(model(IDS))
    whole, state = model(IDS[:, :-1], return_state=True, state=model.get_initial_state(2, 13))
    step, _ = model.step(IDS[:, -1:], state)
    return np.concatenate([ops.convert_to_numpy(whole), ops.convert_to_numpy(step)[:, None]], axis=1)


def main(folder, out):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    found = {}
    for name in (*BUILT, *ENCODERS):
        model = pretrained.load(folder / name).model
        found[name] = logits(model)
        pretrained.save(model, out / name)
    np.savez(out / "logits.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
