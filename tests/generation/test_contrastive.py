import numpy as np
import pytest
from keras import ops

from keras_seq.generation import SamplingConfig, SamplingLoop, contrastive_search
from keras_seq.models import LSTMConfig, TransformerConfig

VOCABULARY, CONTEXT = 7, 24
MODELS = {
    "lstm": LSTMConfig(embedding_dim=4, units=6),
    "transformer": TransformerConfig(
        embedding_dim=8, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=CONTEXT
    ),
}
PROMPT = [3, 1, 4, 1, 5]
pytestmark = pytest.mark.usefixtures("eagerly")  # texts of many lengths


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    model = MODELS[request.param].build_model(VOCABULARY)
    random = np.random.default_rng(4)
    for weight in model.trainable_variables:
        weight.assign(random.normal(size=weight.shape))
    return model


def by_whole_passes(model, ids, length, top_k, alpha):
    """The formula, in loops and float64, every candidate in a whole pass from the first id."""
    ids = list(ids)

    def hidden(texts):
        x = ops.convert_to_numpy(model.hidden_states(np.array(texts))[0]).astype("float64")
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    for _ in range(length):
        p = ops.convert_to_numpy(ops.softmax(model(np.array([ids]))[0, -1]))
        candidates = [int(candidate) for candidate in np.argsort(-p)[:top_k]]
        scores = {}
        for candidate, x in zip(candidates, hidden([[*ids, candidate] for candidate in candidates]), strict=True):
            similarity = max(x[-1] @ h for h in x[:-1])
            scores[candidate] = (1 - alpha) * p[candidate] - alpha * similarity
        ids.append(max(scores, key=scores.get))
    return ids[-length:]


@pytest.mark.parametrize(
    ("top_k", "alpha"), [(7, 0.9), *(pytest.param(*case, marks=pytest.mark.rare) for case in ((3, 0.6), (20, 0.3)))]
)
def test_it_is_the_formula(model, top_k, alpha):
    assert contrastive_search(model, PROMPT, 6, top_k, alpha) == by_whole_passes(model, PROMPT, 6, top_k, alpha)


@pytest.mark.any_backend
def test_without_alpha_or_with_one_candidate_it_is_greedy(model):
    greedy = np.concatenate([*SamplingLoop(model)([PROMPT], 15, SamplingConfig(temperature=0))], axis=1)[0].tolist()
    assert contrastive_search(model, PROMPT, 15, top_k=4, alpha=0) == greedy
    assert contrastive_search(model, PROMPT, 15, top_k=1, alpha=0.9) == greedy


def test_what_is_out_of_its_range_is_refused_by_name(model):
    for options, message in (
        ({"ids": []}, "empty"),
        ({"top_k": 0}, "top_k=0"),
        ({"alpha": 1.5}, "alpha=1.5"),
        ({"alpha": float("nan")}, "alpha=nan"),
    ):
        with pytest.raises(ValueError, match=message):
            contrastive_search(**{"model": model, "ids": PROMPT, "max_new_tokens": 2, **options})


def test_it_goes_no_further_than_the_context():
    model = MODELS["transformer"].build_model(VOCABULARY)
    assert len(contrastive_search(model, PROMPT, CONTEXT - 5)) == CONTEXT - 5
    with pytest.raises(ValueError, match="context_length=24"):
        contrastive_search(model, PROMPT, CONTEXT - 4)
