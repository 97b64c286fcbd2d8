"""Losses and texts of small models on any backend: `python -m tests.evaluation.backend_results`."""

import json

import keras
import numpy as np

from keras_seq.evaluation import Evaluator, score_text
from keras_seq.generation import TextGenerator
from keras_seq.models import Ensemble, LSTMConfig, MambaConfig, MinGRUConfig, TransformerConfig
from keras_seq.tokenizers import CharacterTokenizer

TOKENIZER = CharacterTokenizer("\n abcdefg")
TEXT = "a bad cab\nfaced a bee"
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=5),
    "transformer": TransformerConfig(embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=6),
    "mamba": MambaConfig(embedding_dim=4, num_layers=1, state_dim=3),
    "mingru": MinGRUConfig(embedding_dim=4, num_layers=1, feed_forward_dim=8, units=5),
}


def results() -> dict:
    """By model: token losses of a text, and texts."""
    models = {name: config.build_model(TOKENIZER.vocabulary_size) for name, config in MODELS.items()}
    random = np.random.default_rng(4)
    for model in models.values():
        for weight in model.trainable_variables:
            weight.assign(random.normal(size=weight.shape))
    ids = keras.Input((6,), dtype="int32")
    models["functional"] = keras.Model(ids, models["transformer"](ids))
    models["ensemble"] = Ensemble([models["lstm"], models["transformer"]])
    return {name: _results(model) for name, model in models.items()}


def _results(model):
    generator = TextGenerator(model, TOKENIZER)
    losses = [Evaluator(model).chunked_token_losses(np.asarray(TOKENIZER.encode(TEXT)), 6).reshape(-1)]
    losses.append(score_text(model, TOKENIZER, TEXT).token_losses[1:])
    texts = generator(["abc", TEXT, "g"], 40, temperature=0.8, seed=3, top_p=0.9)
    texts += [generator.beam("ab", 4)]
    texts += [generator.contrastive("ab", 4)] if hasattr(model, "hidden_states") else []
    return {"losses": np.concatenate(losses).tolist(), "texts": texts}


if __name__ == "__main__":
    print(json.dumps(results()))
