import dataclasses
import json

import keras
import numpy as np
import pytest
from keras import ops

from experiments import entropy_floor as study
from keras_seq.data import SequentialWindows, StatefulWindows
from keras_seq.models import LANGUAGE_MODELS, LanguageModel, laws
from keras_seq.runs.folders import dataclass_from_dict

CONFIG = study.EntropyFloorConfig(vocabulary_size=4, order=2, seed=1, tokens=20_000, validation_tokens=4_000)


@pytest.fixture(scope="module")
def corpus():
    return study.draw_corpus(CONFIG, "markov")


def score(probabilities, corpus, first=1):
    """Scores of a model that gives the ids of the validation text from the second on these probabilities."""
    losses = -np.log(probabilities)
    row = {"model": "it", "corpus": corpus.name}
    return row | study.excess_loss(losses, corpus.source_losses[first : first + len(losses)])


def confused(chain, seed):
    """Transition probabilities of a model that confuses the chain with another one."""
    return 0.9 * chain.transition_probs + 0.1 * dataclasses.replace(chain, seed=seed).transition_probs


def test_excess_loss_is_a_mean_and_its_standard_error():
    scores = study.excess_loss(np.array([1.0, 2.0, 4.0, 1.0], "float32"), np.ones(4))
    assert scores == {"excess_loss": 1.0, "standard_error": pytest.approx(np.std([0, 1, 3, 0]) / 2)}


def test_models_that_know_less_than_the_source_are_above_it_by_the_relative_entropy(corpus):
    chain, ids = corpus.source, corpus.validation
    for seed in range(2, 8):
        rows = confused(chain, seed)
        row = score(rows[ids[:-2] * 4 + ids[1:-1], ids[2:]], corpus)
        divergence = chain.stationary @ (chain.transition_probs * np.log(chain.transition_probs / rows)).sum(axis=1)
        assert row["excess_loss"] == pytest.approx(divergence, abs=4 * row["standard_error"])
        assert not study.is_leak(row)


def test_chance_alone_is_no_leak(corpus):
    """Twenty texts under the source itself, slightly mistaken: about half are below, none is called a leak."""
    chain, rows = corpus.source, []
    probs = 0.98 * chain.transition_probs + 0.02 / 4
    for seed in range(20):
        ids = chain.sample(300, seed)
        rows.append(study.excess_loss(-np.log(probs[ids[:-2] * 4 + ids[1:-1], ids[2:]]), chain.token_losses(ids)[2:]))
    assert any(row["excess_loss"] < 0 for row in rows)
    assert not any(map(study.is_leak, rows))


def test_a_chain_that_peeks_is_caught(corpus):
    """p(id | the two before, the one behind), exactly: what the best model with a leak of one position knows."""
    ids, probs = corpus.validation, corpus.source.transition_probs
    joint = probs.reshape(4, 4, 4, 1) * probs.reshape(1, 4, 4, 4)  # a, b, c, d: p(c | a b) p(d | b c)
    peeking = joint / joint.sum(axis=2, keepdims=True)
    row = score(peeking[ids[:-3], ids[1:-2], ids[2:-1], ids[3:]], corpus)
    (sentence,) = study.leaks([row])
    assert sentence.startswith("it on markov is 0.")
    assert "nats per token below the entropy floor" in sentence


def test_n_grams_of_the_chain_s_order_are_close_and_never_below_and_are_chosen_on_the_training_text(corpus):
    row = study.ngram_scores(corpus, order=3)
    assert not study.is_leak(row)
    assert row["excess_loss"] < 0.03 * corpus.source_losses.mean()
    assert study.ngram_scores(corpus, order=1)["excess_loss"] > 5 * row["excess_loss"]
    assert study.best_ngram_order(corpus) == 3


def test_ids_are_decoded_and_encoded():
    corpus = study.draw_corpus(dataclasses.replace(CONFIG, tokens=200, batch_size=1, validation_tokens=100), "grammar")
    text = corpus.tokenizer.decode(corpus.validation)
    assert text[0] in "([{<"
    np.testing.assert_array_equal(corpus.tokenizer.encode(text), corpus.validation)
    assert len(corpus.source_losses) == 99
    assert (corpus.train[:100] != corpus.validation).any()


def test_a_longer_training_would_have_another_text():
    saved = study.EntropyFloorConfig(tokens=100 * 64 * 12)
    saved.check_resumed(saved)
    with pytest.raises(ValueError, match="--tokens 153600: expected 76800, as many as were drawn"):
        dataclasses.replace(saved, tokens=200 * 64 * 12).check_resumed(saved)


QUICK = ("lstm", "transformer")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rare] * (name not in QUICK)) for name in LANGUAGE_MODELS]
)
def test_every_model_can_be_built_at_a_width(name):
    config = study.EntropyFloorConfig(width=16, sequence_length=8)
    small, large = (
        dataclasses.replace(config, width=width).model_config(name).build_model(8).count_params() for width in (16, 64)
    )
    assert small < large < 400_000


def test_every_id_is_trained_on_once():
    config = study.EntropyFloorConfig(tokens=5_000, batch_size=4, sequence_length=8, validation_tokens=50)
    ids = study.draw_corpus(config, "grammar").train
    for windows in (SequentialWindows(ids, 4, 8), StatefulWindows(ids, 4, 8)):
        assert windows.steps_per_epoch == config.steps
    assert len(ids) == config.steps * 4 * 8 + 1


def test_figures_are_those_of_the_model_that_was_saved(smoke):
    rows = {(row["corpus"], row["model"]): row for row in smoke.rows}
    for name in study.SOURCES:
        row = rows[name, "lstm"]
        saved = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))["experiment"]
        corpus = study.draw_corpus(dataclass_from_dict(study.EntropyFloorConfig, saved), name)
        model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
        logits = ops.log_softmax(model(corpus.validation[None, :-1]))[0]  # in one go, from the zero state
        losses = -np.take_along_axis(ops.convert_to_numpy(logits), corpus.validation[1:, None], axis=1)[:, 0]
        assert row["val_loss_streaming"] == pytest.approx(losses.mean(), abs=1e-4)
        source_loss = corpus.source.token_losses(corpus.validation)[1:].mean()
        assert row["excess_loss"] == pytest.approx(losses.mean() - source_loss, abs=1e-4)
        assert row["source_loss"] + row["excess_loss"] == pytest.approx(row["val_loss_streaming"], abs=1e-5)
        assert row["entropy_rate"] == corpus.source.entropy_rate


def a_row(folder, corpus, model, excess_loss, run=True):
    """A row of the report, with the curve of its run."""
    if run:
        (folder / f"{corpus}-{model}").mkdir()
        lines = [{"tokens": 50 * n, "split": "train", "loss": 4.0 / n} for n in range(1, 9)]
        for tokens in (200, 400):
            seen = {"tokens": tokens, "split": "validation", "val_loss_streaming": 2.0 + excess_loss}
            lines.append({**seen, "excess_loss": excess_loss})
        (folder / f"{corpus}-{model}" / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return {
        **{"corpus": corpus, "model": model, "run": f"{corpus}-{model}" if run else None, "sample": "abc"},
        **{
            "entropy_rate": 1.9,
            "source_loss": 2.0,
            "val_loss_streaming": 2.0 + excess_loss,
            "excess_loss": excess_loss,
            "standard_error": 0.01,
        },
        **{"val_loss": 2.5, "parameters": 1234, "train_seconds": 5.0},
    }


def test_the_picture_has_the_curves_the_floor_and_the_distance(tmp_path, drawn):
    rows = [a_row(tmp_path, "markov", "4-gram", 0.1, run=False), a_row(tmp_path, "markov", "lstm", 0.3)]
    losses, excess = drawn(study.plot, tmp_path, rows)
    levels = {float(line.get_ydata()[0]) for line in losses.get_lines() if len(set(line.get_ydata())) == 1}
    assert levels == {1.9, 2.0, 2.1, 2.3}  # entropy rate, floor, n-grams, a constant validation curve
    (curve,) = (line for line in excess.get_lines() if line.get_color() == "C0")
    np.testing.assert_allclose(curve.get_xydata(), [(200, 0.15), (400, 0.15)])


def test_the_verdict_names_leaks_and_the_closest_with_its_uncertainty(tmp_path):
    rows = [a_row(tmp_path, "markov", "lstm", 0.3), a_row(tmp_path, "markov", "gpt2", 0.02)]
    said = study.verdict(rows)
    assert said.startswith("No model is below the entropy floor by more than 4 standard errors.")
    assert "Closest on markov: gpt2, 1.00% ± 0.50% above the floor." in said
    leaking = [*rows, a_row(tmp_path, "markov", "mamba", -0.05)]
    (sentence,) = study.leaks(leaking)
    assert sentence.startswith("mamba on markov is 0.0500 nats per token below the entropy floor, by 5 standard errors")
    assert study.verdict(leaking).startswith(sentence)
    assert "Closest on markov: gpt2" in study.verdict(leaking)


class Peek(keras.layers.Layer):
    """x with the next position's beside it: a leak, which the check of steps would refuse."""

    def call(self, x):
        return ops.concatenate([x, ops.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0)))], axis=-1)


@dataclasses.dataclass(frozen=True)
class Leaking:
    """A language model of one such layer."""

    context_length: int = 16

    def build_model(self, vocabulary_size, dtype=None):
        embedding, head = keras.layers.Embedding(vocabulary_size, 8), keras.layers.Dense(vocabulary_size)
        model = LanguageModel(embedding, [Peek()], head, context_length=self.context_length)
        with laws.disabled():
            model.build((None, None))
        return model


@pytest.mark.smoke
def test_a_model_that_sees_the_next_id_ends_with_status_1_and_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study.EntropyFloorConfig, "model_config", lambda self, name: Leaking())
    monkeypatch.setattr("keras_seq.training.trainer.save_model", lambda path, model: None)
    options = "--smoke --models gpt2 --corpora markov --train.learning-rate 0.2 --train.optimizer adam"
    with pytest.raises(SystemExit) as stop:
        study.main([*options.split(), "--log-dir", str(tmp_path)])
    output = capsys.readouterr()
    assert stop.value.code == 1
    assert output.err.strip().startswith("gpt2 on markov is 0.")
    assert "sees tokens that it has to predict" in output.err
    assert "No model is below" not in output.out
