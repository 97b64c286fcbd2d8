import json

import keras
import numpy as np
import pytest

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from keras_seq.evaluation import score_text  # noqa: E402
from keras_seq.evaluation.harness import HarnessModel  # noqa: E402
from keras_seq.generation import TextGenerator  # noqa: E402
from keras_seq.models import GPT2Config, LSTMConfig  # noqa: E402
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer  # noqa: E402
from tests.tokenizers.test_text import with_bos  # noqa: E402

pytestmark = pytest.mark.rare
TOKENIZER = CharacterTokenizer("\n .abcdefgh")
DOCS = [
    {"text": "a bad", "choices": ["cab", "a bed.", "h"], "label": 1},
    {"text": "fed a", "choices": ["dad", "bead", "egg"], "label": 0},
]
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{text}}}}"
{more}
"""
KINDS = {
    "multiple_choice": 'doc_to_choice: "{{choices}}"\ndoc_to_target: label\nmetric_list: [{metric: acc}]',
    "loglikelihood_rolling": 'doc_to_target: "{{text}}"\nmetric_list: [{metric: bits_per_byte}]',
    "generate_until": 'doc_to_target: "{{choices[0]}}"\nmetric_list: [{metric: exact_match}]\n'
    'generation_kwargs: {until: ["e"], max_gen_toks: 12, do_sample: false}',
}


def ask(harness, method, *requests):
    """Return the answers of one of the harness's three methods to requests, given as their arguments."""
    return getattr(harness, method)([Instance(method, {}, arguments, n) for n, arguments in enumerate(requests)])


@pytest.fixture(scope="module", params=["lstm", "gpt2"])
def model(request, randomize):
    configs = {
        "lstm": LSTMConfig(embedding_dim=4, units=6),
        "gpt2": GPT2Config(embedding_dim=4, num_layers=1, num_heads=1, feed_forward_dim=4, context_length=16),
    }
    return randomize(configs[request.param].build_model(TOKENIZER.vocabulary_size), seed=3, scale=0.8)


def samples(model, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCS)), encoding="utf-8")
    text = TASK.format(name=f"local_{kind}", data=tmp_path / "docs.jsonl", kind=kind, more=KINDS[kind])
    (tmp_path / "task.yaml").write_text(text, encoding="utf-8")
    results = lm_eval.simple_evaluate(
        model=HarnessModel(model, TOKENIZER),
        tasks=[f"local_{kind}"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        bootstrap_iters=0,
    )
    return results["samples"][f"local_{kind}"]


@pytest.mark.filterwarnings("ignore")  # of the harness and its dependencies
def test_a_task_from_a_file_gives_the_log_likelihoods_of_our_own_scores(model, tmp_path, monkeypatch):
    for sample in samples(model, tmp_path, monkeypatch, "multiple_choice"):
        doc = sample["doc"]
        for choice, (response,) in zip(doc["choices"], sample["resps"], strict=True):
            whole = score_text(model, TOKENIZER, f"{doc['text']} {choice}").token_losses
            assert response[0] == pytest.approx(-whole[len(doc["text"]) :].sum(), abs=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_text_is_scored_as_by_score_text(model, tmp_path, monkeypatch):
    for sample in samples(model, tmp_path, monkeypatch, "loglikelihood_rolling"):
        losses = score_text(model, TOKENIZER, sample["doc"]["text"]).token_losses
        assert np.ravel(sample["resps"])[0] == pytest.approx(-losses[1:].sum(), abs=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_text_is_generated_up_to_a_stop_string(model, tmp_path, monkeypatch):
    generator = TextGenerator(model, TOKENIZER)
    for sample in samples(model, tmp_path, monkeypatch, "generate_until"):
        text = sample["doc"]["text"]
        expected = generator(text, 12, temperature=0.0).removeprefix(text).partition("e")[0]
        assert np.ravel(sample["resps"])[0] == expected


def test_requests_are_sampled_with_their_filters_and_repeats_differ(model):
    def generated(*options):
        requests = [("abc", {"max_gen_toks": 9} | option) for option in options]
        return ask(HarnessModel(model, TOKENIZER), "generate_until", *requests)

    sampled = {"do_sample": True, "until": [""]}
    assert len({*generated(*[sampled] * 3)}) == 3
    greedy, first, every = generated({}, sampled | {"top_k": 1}, sampled | {"top_k": 0, "top_p": 1.0})
    assert first == greedy != every


def test_the_names_of_tasks_and_a_temperature_are_understood(model):
    def generated(**options):
        return ask(HarnessModel(model, TOKENIZER), "generate_until", ("abc", options))[0]

    for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
        assert len(generated(**{name: 5})) == 5
    sampled = generated(do_sample=True, temperature=3.0, max_tokens=30)
    assert generated(temperature=3.0, max_tokens=30) == sampled
    assert generated(temperature=3.0, do_sample=False, max_tokens=30) == generated(max_tokens=30) != sampled
    with pytest.raises(ValueError, match=r"top_p=0\.0"):
        generated(do_sample=True, top_p=0.0)


def test_a_token_of_both_texts_is_scored_whole():
    text = "the cat sat on the mat. " * 30
    tokenizer = BytePairTokenizer.from_text(text, vocabulary_size=300)
    model = LSTMConfig(embedding_dim=4, units=6).build_model(tokenizer.vocabulary_size)
    ids = tokenizer.encode("the cat sat")
    assert [tokenizer.decode([id]) for id in ids] == ["the", " cat", " sat"]
    losses = score_text(model, tokenizer, "the cat sat").token_losses
    harness = HarnessModel(model, tokenizer)
    (first, _), (second, _) = ask(harness, "loglikelihood", ("the c", "at sat"), ("the ca", "t"))
    assert first == pytest.approx(-losses[1:].sum(), abs=1e-5)
    assert second == pytest.approx(-losses[1], abs=1e-5)
    with pytest.raises(ValueError, match="one token with what follows"):
        ask(harness, "loglikelihood", ("th", "e"))


def test_the_prefix_is_an_id(model):
    with pytest.raises(ValueError, match="prefix_token_id=999"):
        HarnessModel(model, TOKENIZER, prefix_token_id=999)


def test_greedy_continuations_are_marked_and_long_texts_lose_their_beginning(model):
    harness, generator = HarnessModel(model, TOKENIZER), TextGenerator(model, TOKENIZER)
    likeliest = generator("abc", 1, temperature=0.0)[3:]
    other = "h" if likeliest != "h" else "g"
    pairs = [("abc", likeliest), ("abc", other), ("abcdefgh" * 4, "bad")]
    greedy, not_greedy, long = ask(harness, "loglikelihood", *pairs)
    assert (greedy[1], not_greedy[1]) == (True, False)
    assert greedy[0] > not_greedy[0]
    ids = TOKENIZER.encode("abcdefgh" * 4 + "bad")[-(model.context_length or 99) - 1 :]
    logits = np.asarray(model(ids[None, :-1]))[0, -3:].astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    assert long[0] == pytest.approx(sum(log_p[n, id] for n, id in enumerate(ids[-3:])), abs=1e-4)


def test_an_empty_context_needs_a_prefix(model):
    with pytest.raises(ValueError, match="prefix_token_id"):
        ask(HarnessModel(model, TOKENIZER), "loglikelihood", ("", "bad"))
    prefixed = HarnessModel(model, TOKENIZER, prefix_token_id=int(TOKENIZER.encode(".")[0]))
    expected = -score_text(model, TOKENIZER, ".bad").token_losses[1:].sum()
    assert ask(prefixed, "loglikelihood", ("", "bad"))[0][0] == pytest.approx(expected, abs=1e-4)


def test_a_continuation_fits_the_context_and_an_empty_one_is_certain(model):
    harness = HarnessModel(model, TOKENIZER)
    assert ask(harness, "loglikelihood", ("abc", "")) == [(0.0, True)]
    if model.context_length is not None:
        with pytest.raises(ValueError, match="has 120 tokens; expected 1 to "):
            ask(harness, "loglikelihood", ("abc", "bad" * 40))


def test_an_empty_context_is_continued_after_the_prefix(model):
    request, prefix = ("", {"max_gen_toks": 6}), TOKENIZER.encode(".")[0]
    (text,) = ask(HarnessModel(model, TOKENIZER, prefix_token_id=prefix), "generate_until", request)
    assert f".{text}" == TextGenerator(model, TOKENIZER)(".", 6, temperature=0.0)
    with pytest.raises(ValueError, match="prefix_token_id"):
        ask(HarnessModel(model, TOKENIZER), "generate_until", request)


def test_a_token_that_begins_every_text_is_not_scored():
    tokenizer = with_bos()
    model = LSTMConfig(embedding_dim=4, units=6).build_model(tokenizer.vocabulary_size)
    losses = score_text(model, tokenizer, "to be").token_losses
    for prefix in (None, int(tokenizer.encode("")[0])):
        harness = HarnessModel(model, tokenizer, prefix_token_id=prefix)
        (rolling,) = ask(harness, "loglikelihood_rolling", ("to be",))
        whole, last = ask(harness, "loglikelihood", ("", "to be"), ("to", " be"))
        assert rolling == pytest.approx(whole[0], abs=1e-5) == pytest.approx(-losses[1:].sum(), abs=1e-5)
        assert last[0] == pytest.approx(-losses[2], abs=1e-5)


def test_a_prefix_begins_every_text_whose_first_token_is_then_scored(model):
    prefixed = HarnessModel(model, TOKENIZER, prefix_token_id=TOKENIZER.encode(".")[0])
    short, long = "a bad cab", "a bad cab. a fed head"  # longer than GPT-2's context

    def rolling(harness, text):
        return ask(harness, "loglikelihood_rolling", (text,))[0]

    ((expected, _),) = ask(prefixed, "loglikelihood", ("", short))
    assert rolling(prefixed, short) == pytest.approx(expected, abs=1e-4)
    assert rolling(prefixed, long) == pytest.approx(rolling(HarnessModel(model, TOKENIZER), f".{long}"), abs=1e-4)
    assert rolling(prefixed, "a") < 0
    with pytest.raises(ValueError, match="'a' has no token that follows another"):
        rolling(HarnessModel(model, TOKENIZER), "a")


@pytest.mark.filterwarnings("ignore:.* reads the whole text again for every token:UserWarning")
def test_a_keras_model_of_one_length_is_scored_too():
    size = TOKENIZER.vocabulary_size
    layers = [keras.layers.Embedding(size, 5), keras.layers.Dense(size)]
    fixed, free = (keras.Sequential([keras.Input((length,), dtype="int32"), *layers]) for length in (8, None))
    pairs = [("abc", "bad"), ("abcdefgh" * 2, "bad")]
    expected = ask(HarnessModel(free, TOKENIZER), "loglikelihood", *pairs)
    for (loss, greedy), (other, other_greedy) in zip(
        ask(HarnessModel(fixed, TOKENIZER), "loglikelihood", *pairs), expected, strict=True
    ):
        assert (loss, greedy) == (pytest.approx(other, abs=1e-4), other_greedy)
