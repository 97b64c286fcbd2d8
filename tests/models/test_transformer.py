import dataclasses

import numpy as np
import pytest

from keras_seq.models import TransformerConfig

CONTEXT, VOCABULARY = 9, 11
SMALL = TransformerConfig(
    embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, context_length=CONTEXT, dropout=0.3
)


def test_every_field_reaches_its_layers():
    for config in (SMALL, dataclasses.replace(SMALL, tie_embeddings=True)):
        model = config.build_model(VOCABULARY)
        *blocks, _ = model.blocks
        found = {
            "embedding_dim": {model.embedding.output_dim},
            "num_layers": {len(blocks)},
            "context_length": {model.context_length},
            "tie_embeddings": {model.head is None},
            **{
                name: {getattr(block, name) for block in blocks}
                for name in ("num_heads", "feed_forward_dim", "dropout")
            },
        }
        assert found == {name: {value} for name, value in dataclasses.asdict(config).items()}
        assert (model.name, model.embedding.input_dim) == ("transformer", VOCABULARY)
        assert all(block.causal for block in blocks)


def test_beyond_its_context_it_says_so(randomize):
    model, ids = randomize(SMALL.build_model(VOCABULARY)), np.arange(2 * CONTEXT + 2).reshape(2, -1) % VOCABULARY
    with pytest.raises(ValueError, match=f"{CONTEXT + 1} positions; expected at most context_length={CONTEXT}"):
        model(ids)
    _, state = model(ids[:, :CONTEXT], state=model.get_initial_state(2), return_state=True)
    with pytest.raises(ValueError, match=f"capacity={CONTEXT}"):
        model.step(ids[:, -1:], state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("embedding_dim", "num_layers", "num_heads", "feed_forward_dim", "context_length")
            for value in (0, -1, 1.5)
        ),
        ("num_heads", 3),
        ("context_length", None),
        ("dropout", -0.1),
        ("dropout", 1.0),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        dataclasses.replace(SMALL, **{name: value}).build_model(VOCABULARY)
