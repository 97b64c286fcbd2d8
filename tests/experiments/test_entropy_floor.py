import dataclasses
import json
import types

import keras
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
from keras import ops

from experiments.entropy_floor import __main__ as entropy_floor
from experiments.entropy_floor import report as entropy_floor_report
from experiments.entropy_floor.scores import ExcessLoss, SyntheticCorpus
from experiments.frame.runs import dataclass_from_dict
from keras_seq.data import SequentialWindows, StatefulWindows
from keras_seq.data.synthetic import MarkovChain, bracket_grammar
from keras_seq.models import LANGUAGE_MODELS, BiLSTMConfig, LanguageModel

CHAIN = MarkovChain(vocabulary_size=4, order=2, seed=1)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    entropy_floor.main(["--smoke", "--log-dir", str(logs), "--models", "lstm"])
    (folder,) = (logs / "entropy_floor").iterdir()
    rows = json.loads((folder / "entropy_floor.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows={(row["corpus"], row["model"]): row for row in rows})


@pytest.fixture(scope="module")
def corpus():
    return SyntheticCorpus("markov", CHAIN, "abcd", train_tokens=20_000, validation_tokens=4_000, order=3)


def other_rows(seed):
    """Transition probabilities of a model that confuses the chain with another one."""
    return 0.9 * CHAIN.transition_probs + 0.1 * dataclasses.replace(CHAIN, seed=seed).transition_probs


def test_excess_loss_is_a_mean_and_its_standard_error():
    excess_loss = ExcessLoss.from_losses(np.array([1.0, 2.0, 4.0, 1.0], "float32"), [1.0, 1.0, 1.0, 1.0])
    assert excess_loss.excess == 1.0
    assert excess_loss.standard_error == pytest.approx(np.std([0, 1, 3, 0]) / 2)


def test_models_that_know_less_than_the_source_are_above_it_by_the_relative_entropy(corpus):
    contexts = corpus.ids[:-2] * 4 + corpus.ids[1:-1]
    for seed in range(2, 8):
        rows = other_rows(seed)
        excess_loss = ExcessLoss.from_losses(-np.log(rows[contexts, corpus.ids[2:]]), corpus.source_losses[1:])
        divergence = CHAIN.stationary @ (CHAIN.transition_probs * np.log(CHAIN.transition_probs / rows)).sum(axis=1)
        assert excess_loss.excess == pytest.approx(divergence, abs=4 * excess_loss.standard_error)
        assert not excess_loss.is_leak


def test_chance_alone_is_no_leak():
    """Twenty texts under the source itself, slightly mistaken: about half are below, none is called a leak."""
    rows = 0.98 * CHAIN.transition_probs + 0.02 / 4
    excess_losses = []
    for seed in range(20):
        ids = CHAIN.sample(300, seed)
        excess_losses.append(
            ExcessLoss.from_losses(-np.log(rows[ids[:-2] * 4 + ids[1:-1], ids[2:]]), CHAIN.token_losses(ids)[2:])
        )
    assert any(loss.excess < 0 for loss in excess_losses)
    assert not any(loss.is_leak for loss in excess_losses)


def test_a_chain_that_peeks_is_caught(corpus):
    """p(id | the two before, the one behind), exactly: what the best model with a leak of one position knows."""
    ids = corpus.ids
    joint = CHAIN.transition_probs.reshape(4, 4, 4, 1) * CHAIN.transition_probs.reshape(
        1, 4, 4, 4
    )  # a, b, c, d: p(c | a b) p(d | b c)
    peeking = joint / joint.sum(axis=2, keepdims=True)
    excess_loss = ExcessLoss.from_losses(
        -np.log(peeking[ids[:-3], ids[1:-2], ids[2:-1], ids[3:]]), corpus.source_losses[1:-1]
    )
    assert excess_loss.is_leak
    assert "peek on markov is 0." in excess_loss.message("peek", "markov")
    assert "nats per token below the entropy floor" in excess_loss.message("peek", "markov")


def test_a_tagger_that_reads_both_sides_is_caught(corpus):
    """An LSTM over both directions, trained to predict the next id, sees it."""
    keras.utils.set_random_seed(0)
    x = corpus.train_ids[:8_000].reshape(-1, 10) + 1  # 0 would be padding
    y = corpus.train_ids[1:8_001].reshape(-1, 10)
    tagger = BiLSTMConfig(num_tags=4, embedding_dim=8, units=16).build_model(5)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tagger.compile(optimizer=keras.optimizers.Adam(0.03), loss=loss)
    tagger.fit(x, y, batch_size=32, epochs=2, verbose=0)
    logits = tagger(corpus.ids[:3_990].reshape(-1, 10) + 1)
    shown = corpus.ids[1:3_991].reshape(-1, 10)
    losses = ops.convert_to_numpy(keras.losses.sparse_categorical_crossentropy(shown, logits, from_logits=True))
    assert ExcessLoss.from_losses(losses.ravel(), corpus.source_losses[: losses.size]).is_leak


def test_n_grams_of_the_chain_s_order_are_close_and_never_below(corpus):
    excess_loss = corpus.ngrams()
    assert not excess_loss.is_leak
    assert excess_loss.excess < 0.03 * corpus.source_loss
    short = SyntheticCorpus("markov", CHAIN, "abcd", train_tokens=20_000, validation_tokens=4_000, order=1)
    assert short.ngrams().excess > 5 * excess_loss.excess


def test_the_order_of_n_grams_is_chosen_on_the_training_text():
    assert SyntheticCorpus("markov", CHAIN, "abcd", train_tokens=30_000, validation_tokens=10).order == 3


def test_ids_are_decoded_and_encoded():
    grammar = bracket_grammar(num_letters=3)
    corpus = SyntheticCorpus("grammar", grammar, grammar.terminals, train_tokens=200, validation_tokens=100)
    text = corpus.tokenizer.decode(corpus.ids)
    assert text[0] in "([{<"
    np.testing.assert_array_equal(corpus.tokenizer.encode(text), corpus.ids)
    assert len(corpus.source_losses) == 99
    assert (corpus.train_ids[:100] != corpus.ids).any()


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_every_model_can_be_built_at_a_width(name):
    config = entropy_floor.EntropyFloorConfig(width=16, sequence_length=8)
    small, large = (
        dataclasses.replace(config, width=width).model_config(name).build_model(8).count_params() for width in (16, 64)
    )
    assert small < large < 400_000


def test_every_id_is_trained_on_once():
    config = entropy_floor.EntropyFloorConfig(tokens=5_000, batch_size=4, sequence_length=8, validation_tokens=50)
    ids = config.corpus("grammar").train_ids
    for windows in (SequentialWindows(ids, 4, 8), StatefulWindows(ids, 4, 8)):
        assert windows.steps_per_epoch == config.steps
    assert len(ids) == config.steps * 4 * 8 + 1


@pytest.mark.slow
def test_figures_are_those_of_the_model_that_was_saved(smoke):
    for corpus in entropy_floor.CORPORA:
        row = smoke.rows[corpus, "lstm"]
        config = dataclass_from_dict(
            entropy_floor.EntropyFloorConfig,
            json.loads((smoke.folder / row["run"] / "config.json").read_text())["experiment"],
        )
        text = config.corpus(corpus)
        model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
        logits = ops.log_softmax(model(text.ids[None, :-1]))[0]  # in one go, from the zero state
        losses = -np.take_along_axis(ops.convert_to_numpy(logits), text.ids[1:, None], axis=1)[:, 0]
        assert row["val_loss_streaming"] == pytest.approx(losses.mean(), abs=1e-4)
        assert row["excess_loss"] == pytest.approx(
            losses.mean() - text.source.token_losses(text.ids)[1:].mean(), abs=1e-4
        )
        assert row["source_loss"] + row["excess_loss"] == pytest.approx(row["val_loss_streaming"], abs=1e-5)
        assert row["entropy_rate"] == text.source.entropy_rate


@pytest.mark.slow
def test_the_report_has_every_row_and_the_picture(smoke):
    report = (smoke.folder / "entropy_floor.md").read_text(encoding="utf-8")
    for corpus, model in smoke.rows:
        assert any(line.split()[1:4:2] == [corpus, model] for line in report.splitlines() if line.startswith("| "))
    assert "No model is below the entropy floor" in report
    height, width, _ = matplotlib.image.imread(smoke.folder / "entropy_floor.png").shape
    assert width > height > 400


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(smoke, capsys):
    before = {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*-seed0/*")}
    assert before
    entropy_floor.main(["--resume", str(smoke.folder)])
    assert {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*-seed0/*")} == before
    assert "Best on markov: lstm" in capsys.readouterr().out


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


def test_the_picture_has_the_curves_the_floor_and_the_distance(tmp_path, monkeypatch):
    rows = [a_row(tmp_path, "markov", "4-gram", 0.1, run=False), a_row(tmp_path, "markov", "lstm", 0.3)]
    monkeypatch.setattr(entropy_floor_report.plots, "save", lambda figure, path: None)
    entropy_floor_report.plot(tmp_path, rows)
    losses, excess = plt.gcf().axes
    plt.close("all")
    levels = {float(line.get_ydata()[0]) for line in losses.get_lines() if len(set(line.get_ydata())) == 1}
    assert levels == {1.9, 2.0, 2.1, 2.3}  # entropy rate, floor, n-grams, a constant validation curve
    (curve,) = (line for line in excess.get_lines() if line.get_color() == "C0")
    np.testing.assert_allclose(curve.get_xydata(), [(200, 0.15), (400, 0.15)])


def test_the_table_has_the_share_above_the_floor_and_the_verdict_names_leaks_and_the_best(tmp_path):
    rows = [a_row(tmp_path, "markov", "lstm", 0.3), a_row(tmp_path, "markov", "gpt2", 0.02)]
    lines = entropy_floor_report.table(rows).splitlines()
    assert [line.split()[-4] for line in lines[2:]] == ["15.00%", "1.00%"]
    assert entropy_floor_report.verdicts(rows).splitlines() == [
        "No model is below the entropy floor by more than 4 standard errors.",
        "Best on markov: gpt2, 1.00% above the entropy floor.",
    ]
    leaking = [*rows, a_row(tmp_path, "markov", "mamba", -0.05)]
    (message,) = entropy_floor_report.leak_messages(leaking)
    assert message.startswith("mamba on markov is 0.0500 nats per token below the entropy floor, by 5 standard errors")
    assert entropy_floor_report.verdicts(leaking).startswith(message)


class Peek(keras.layers.Layer):
    """x with the next position's beside it: a leak that no test of the layer's kind can see."""

    def call(self, x):
        return ops.concatenate([x, ops.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0)))], axis=-1)


@dataclasses.dataclass(frozen=True)
class Leaking:
    """A language model of one such layer."""

    context_length: int = 16

    def build_model(self, vocabulary_size, dtype=None):
        embedding, head = keras.layers.Embedding(vocabulary_size, 8), keras.layers.Dense(vocabulary_size)
        model = LanguageModel(embedding, [Peek()], head, context_length=self.context_length)
        model.build((None, None))
        return model


def test_a_model_that_sees_the_next_id_ends_with_status_1_and_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(entropy_floor.EntropyFloorConfig, "model_config", lambda self, name: Leaking())
    monkeypatch.setattr(entropy_floor, "save_model", lambda path, model: None)
    options = "--smoke --models gpt2 --corpora markov --train.learning-rate 0.2 --train.optimizer adam"
    with pytest.raises(SystemExit) as stop:
        entropy_floor.main([*options.split(), "--log-dir", str(tmp_path)])
    output = capsys.readouterr()
    assert stop.value.code == 1
    assert output.err.strip().startswith("gpt2 on markov is 0.")
    assert "sees tokens that it has to predict" in output.err
    assert "No model is below" not in output.out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--vocabulary-size 1", "--vocabulary-size 1"),
        ("--vocabulary-size 27", "--vocabulary-size 27"),
        ("--order 0", "--order 0"),
        ("--vocabulary-size 26 --order 6", "vocabulary_size=26 and order=6"),
        ("--concentration 0", "concentration"),
        ("--tokens 1", "--tokens 1"),
        ("--validation-tokens 64", "--validation-tokens 64"),
        ("--width 12", "--width 12"),
        ("--models", "--models"),
        ("--models lstm lstm", "--models lstm lstm"),
        ("--models bilstm", "bilstm"),
        ("--corpora pydoc", "pydoc"),
        ("--seed -1", "--seed -1"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(entropy_floor.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.entropy_floor: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
