import html
import pathlib
import re

import keras
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import softmax

from keras_seq.commands import inspect as inspect_model
from keras_seq.data import load_corpus
from keras_seq.interpretability import trace_model
from keras_seq.models import MODELS, Ensemble, LSTMConfig
from keras_seq.reports.inspection import find, inspect_page, plot_findings
from keras_seq.reports.pages import percent
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.training import load_run
from tests.interpretability.test_traces import IDS, TOKENIZER, data_of, small


@pytest.fixture
def inspected(smoke, tmp_path, capsys):
    """What the script says of a text under a finished run, and the data of the page it writes."""

    def inspected(*options, name="lstm"):
        inspect_model.main([str(smoke.folder / f"{name}-seed0"), "--out", str(tmp_path / "out"), *map(str, options)])
        return capsys.readouterr().out, data_of((tmp_path / "out" / "inspect.html").read_text(encoding="utf-8"))

    return inspected


@pytest.mark.parametrize(("name", "picture"), [("lstm", "activations_lstm_0"), ("transformer", "attention_block_0")])
def test_it_writes_pictures_and_a_page_and_no_run_of_tensorboard(inspected, smoke, tmp_path, name, picture):
    said, data = inspected("--text", "It is\nso", name=name)
    model, tokenizer = load_run(smoke.folder / f"{name}-seed0")
    p = softmax(keras.ops.convert_to_numpy(model(tokenizer.encode("It is\nso")[None]))[0, -1].astype("float64"))
    best, chance = data["top"][-1][0]
    assert chance == pytest.approx(p.max(), rel=1e-4)
    assert tokenizer.encode(best)[0] == p.argmax()
    assert "".join(data["tokens"]) == "It is\nso"
    out = tmp_path / "out"
    assert str(out / "inspect.html") in said
    assert {"next", picture} <= {path.stem for path in out.glob("*.png")}
    assert all(np.ptp(plt.imread(path)) > 0.5 for path in out.glob("*.png"))
    assert not list(out.glob("*tfevents*"))


def test_by_default_it_shows_the_validation_text_and_writes_into_the_run(smoke, capsys):
    run = smoke.folder / "transformer-seed0"
    inspect_model.main([str(run)])
    output, page = capsys.readouterr().out, run / "inspect" / "inspect.html"
    assert f"Page:   {page}" in output
    assert not output.startswith("Only the first")
    shown = page.read_text(encoding="utf-8")
    assert "<h1>What the transformer trained on pydoc computes for a text</h1>" in shown
    assert "".join(data_of(shown)["tokens"]) in load_corpus("pydoc").split()[1]


def test_unknown_characters_can_be_dropped(inspected):
    assert "".join(inspected("--text", "a 猫cat", "--unknown", "drop")[1]["tokens"]) == "a cat"


def test_a_long_text_is_cut_and_it_says_so(inspected, smoke):
    context_length = load_run(smoke.folder / "transformer-seed0")[0].context_length
    said, data = inspected("--text", 300 * "ab", name="transformer")
    assert "".join(data["tokens"]) == (300 * "ab")[:context_length]
    assert said.startswith(
        f"Only the first {context_length} of the 600 tokens are used: the model's context length is {context_length}.\n"
    )


def test_a_model_without_a_context_length_takes_200_tokens():
    ids = np.arange(201)
    shorter, message = inspect_model.truncate(small("gru"), ids)
    assert shorter.tolist() == list(range(200))
    assert message == "Only the first 200 of the 201 tokens are used: more cannot be displayed well."
    assert inspect_model.truncate(small("gru"), ids[:200]) == (pytest.approx(ids[:200]), None)


@pytest.mark.parametrize(
    ("run", "options", "names"),
    [
        ("nowhere", "", "nowhere does not exist"),
        ("lstm-seed0", "--text=a", "at least 2"),
        ("lstm-seed0", "--text=", "at least 2"),
        ("lstm-seed0", "--text=a猫", "'猫' (U+732B): change the text, or add --unknown drop"),
        ("lstm-seed0", "--text=abc --source-text=ab", "The texts have 3 and 2 tokens"),
        ("lstm-seed0", "--text=abc --source-text=abc", "predicts the same after both texts"),
        ("lstm-seed0", "--out={}/model.keras", "model.keras"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(smoke, fails, run, options, names):
    folder = smoke.folder / run
    sentence = fails(inspect_model.main, folder, *options.format(folder).split())
    assert names in sentence


def test_a_run_of_another_kind_is_refused(fails, tmp_path):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    save_model(
        MODELS["bilstm"](embedding_dim=2, units=2).build_model(TOKENIZER.vocabulary_size), tmp_path / "model.keras"
    )
    assert "not a language model" in fails(inspect_model.main, tmp_path)
    members = [LSTMConfig(embedding_dim=2, units=2).build_model(TOKENIZER.vocabulary_size) for _ in range(2)]
    save_model(Ensemble(members), tmp_path / "model.keras")
    assert "Ensemble; expected a LanguageModel, such as one of its members" in fails(inspect_model.main, tmp_path)


@pytest.fixture(scope="module")
def inside():
    """A model, what is found inside of it, and the page's text."""
    model = small("gpt2")
    source = np.where(np.arange(len(IDS)) == len(IDS) - 3, IDS[::-1], IDS)
    findings = find(model, TOKENIZER, IDS, source)
    trace = trace_model(model, TOKENIZER, IDS)
    return trace, findings, inspect_page(trace, pathlib.Path("run"), findings)


def test_the_page_has_what_each_layer_would_predict(inside):
    trace, _, page = inside
    lens = data_of(page)["lens"]
    assert [*lens] == ["embedding", "positions", "block_0", "block_1"]
    for (token, p), ((expected, expected_p), *_) in zip(lens["block_1"], trace.top_predictions(), strict=True):
        assert (token, p) == (expected, pytest.approx(expected_p, rel=1e-4))


def test_the_page_says_what_was_found(inside):
    _, findings, page = inside
    text = html.unescape(re.sub("<[^>]*>", "", page))
    assert f"Induction score {findings.induction:.2f}: where 10 random tokens are repeated" in text
    name, head, score = findings.best_head
    assert score == findings.heads[name][head - 1] == max(row.max() for row in findings.heads.values())
    assert (f"Head {head} of {name} looks most" in text) == (score > np.log(2) / 10)
    assert ("No head looks at what followed" in text) == (score <= np.log(2) / 10)
    assert "a linear probe can still tell" in text
    cells = [float(cell) for cell in re.findall(r'<td style="--n: [^>]*>(-?\d\.\d\d)</td>', page)]
    effects = np.concatenate([*findings.effects.values()])
    assert cells == pytest.approx([round(v, 2) for v in effects if abs(v) >= 0.005], abs=0.011)
    assert set(findings.memory["block_1"]) == {0, 1, 2, 4, 8}


def test_the_plots_show_the_findings(inside):
    trace, findings, _ = inside
    figures = dict(plot_findings(trace, findings))
    assert [*figures] == ["lens", "memory", "patching"]
    values = {
        "lens": [[p for _, p in row] for row in findings.lens.values()],
        "memory": [[*row.values()] for row in findings.memory.values()],
        "patching": np.clip([*findings.effects.values()], -1, 1),
    }
    for name, figure in figures.items():
        np.testing.assert_allclose(figure.axes[0].images[0].get_array(), values[name])


def test_a_model_without_attention_has_no_head_and_without_a_source_no_patches():
    findings = find(small("rnn"), TOKENIZER, IDS)
    assert findings.best_head is None
    assert findings.effects is None
    assert [sentence.split()[0] for sentence in findings.sentences()] == ["Induction", "After"]
    assert "Effect on" not in inspect_page(trace_model(small("rnn"), TOKENIZER, IDS), pathlib.Path("run"), findings)


def test_a_model_of_one_token_remembers_nothing_that_can_be_told():
    tokenizer = CharacterTokenizer("a")
    model, ids = LSTMConfig(3, 4).build_model(1), np.zeros(6, "int32")
    findings, trace = find(model, tokenizer, ids), trace_model(model, tokenizer, ids)
    assert findings.memory == {}
    assert [sentence.split()[0] for sentence in findings.sentences()] == ["Induction"]
    assert [*dict(plot_findings(trace, findings))] == ["lens"]
    assert "linear probe" not in inspect_page(trace, pathlib.Path("run"), findings)


HOVER = """
document.querySelectorAll("#text span")[3].dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
document.querySelector("button.row:last-of-type")?.click();
const text = id => document.getElementById(id).textContent;
document.title = JSON.stringify([text("next"), text("details"), text("lens"),
  document.querySelectorAll("#text .picked").length]);
"""


@pytest.mark.parametrize(
    ("name", "words"), [("lstm", "Most active units at “i”"), ("gpt2", "Attention weights from “i”")]
)
def test_in_a_browser_the_page_shows_what_belongs_to_a_token(browse, tmp_path, name, words):
    trace = trace_model(small(name), TOKENIZER, IDS)
    findings = find(small(name), TOKENIZER, IDS)
    following, details, lens, picked = browse(inspect_page(trace, tmp_path, findings), HOVER)
    assert lens.startswith("Likeliest token after “i”, by layer")
    assert all(
        f"{show_whitespace(row[3][0])} {name}{percent(row[3][1])}" in lens for name, row in findings.lens.items()
    )
    assert f"The next token is “s”: rank {trace.next_token_ranks()[3][0] + 1}" in following
    assert words in details
    assert picked == 1
