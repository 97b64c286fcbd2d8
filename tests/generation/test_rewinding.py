import numpy as np
import pytest
from keras import ops

from keras_seq.generation.sampling_loop import can_rewind, rewound, with_free_slots
from keras_seq.models import Ensemble, GPT2Config, HybridConfig, LlamaConfig, LSTMConfig

pytestmark = pytest.mark.any_backend
V, RANDOM = 5, np.random.default_rng(3)
LLAMA = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8, "context_length": 16}
CONFIGS = {
    "gpt2": (GPT2Config(embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=8, context_length=16), True),
    "llama": (LlamaConfig(**LLAMA), True),
    "window": (LlamaConfig(**LLAMA, sliding_window=3), False),
    "lstm": (LSTMConfig(embedding_dim=4, units=6), False),
    "hybrid": (HybridConfig(embedding_dim=8, num_heads=2, num_layers=2, pattern="ra", context_length=16), False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_rewound_state_is_that_of_fewer_positions(randomize, name):
    """Read 3 ids, then 4 of which 2 count, then 2 more: the logits are those of the 7 ids that count."""
    config, rewinds = CONFIGS[name]
    model = randomize(config.build_model(V), seed=1, scale=0.5)
    start, ids, more = (RANDOM.integers(V, size=(1, n)).astype("int32") for n in (3, 4, 2))
    state = with_free_slots(model.get_initial_state(1, *(() if model.context_length is None else (7,))), 2)
    _, before = model(start, state=state, return_state=True)
    assert can_rewind(model, before) == rewinds
    mask = None if rewinds else np.arange(4)[None] < 2
    _, after = model(ids, state=before, return_state=True, mask=mask)
    state = rewound(before, after, ops.convert_to_tensor(2, "int32"))
    logits, _ = model(more, state=state, return_state=True)
    whole = model(np.concatenate([start, ids[:, :2], more], axis=1))
    np.testing.assert_allclose(ops.convert_to_numpy(logits), ops.convert_to_numpy(whole)[:, -2:], rtol=1e-4, atol=1e-4)


def test_documents_and_members_of_an_ensemble_count(randomize):
    model = CONFIGS["gpt2"][0].build_model(V)
    lstm = CONFIGS["lstm"][0].build_model(V)
    for built, rewinds in ((Ensemble([model]), True), (Ensemble([model, lstm]), False)):
        assert can_rewind(built, built.get_initial_state(1, 7)) == rewinds
    model.document_token = 0
    assert not can_rewind(model, model.get_initial_state(1, 7))
