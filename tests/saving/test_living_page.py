"""The page in a browser: what one types, hovers over and lets a model write is what the models in it compute."""

import json
import math
import shutil

import keras
import numpy as np
import pytest

import keras_seq
from keras_seq.models import LANGUAGE_MODELS
from keras_seq.saving import export_page
from keras_seq.saving.page import round_weights
from keras_seq.training import load_language_model
from tests.callbacks.browser import Browser
from tests.conftest import functions_run_eagerly, often
from tests.processes import ROOT
from tests.saving.test_page import CONTEXT, TOKENIZER, check_steps, hostile_page, small, some_ids

pytestmark = [
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium"),
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow writes it"),
]
RUNS = [ROOT / "docs/living" / name for name in ("lstm", "transformer")]
TEXT = "Return the name of the file, or None.\n\nThe file is open, unless it was closed."  # shorter than a context
VIEWS = {  # widths of a window and of a phone, light and dark
    "wide, light": (1280, "light"),
    "wide, dark": (1280, "dark"),
    "phone, light": (390, "light"),
    "phone, dark": (390, "dark"),
}
every_view = often("view", [*VIEWS], ("wide, light",))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser("chromium", tmp_path_factory.mktemp("profile"))
    for domain in ("Runtime", "Log", "Network", "Page"):
        browser.send(f"{domain}.enable")
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def models():
    """The models of the docs' home, with the weights that they have in a page in 8 bits."""
    loaded = [load_language_model(run) for run in RUNS]
    for model, _ in loaded:
        round_weights(model)
    return loaded


@pytest.fixture(scope="module")
def page(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    of_each = zip(*models, strict=True)
    export_page(next(of_each), path, next(of_each), text=TEXT, descriptions=["a recurrent one", "an attentive one"])
    return path


def opened(browser, path, view="wide, light"):
    width, scheme = VIEWS[view]
    phone = width < 500
    browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=phone)
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(path.as_uri())
    browser.events.clear()
    wait(browser, "document.readyState === 'complete' && document.querySelector('#title').textContent")
    return browser


def wait(browser, condition):
    """Wait until a condition of JavaScript holds."""
    script = f"""new Promise((done, fail) => {{
      const end = performance.now() + 30000;
      const look = () => ({condition}) ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 30);
      look();
    }})"""
    assert browser.run(script), f"{condition}: {browser.text()}"


def everything_read(browser):
    """Wait until the next character is predicted from all of the text."""
    wait(browser, "[...document.querySelectorAll('.expected')].every(said => said.textContent)")


def check_nothing_went_wrong(browser):
    """No error, no request but for the page, nothing wider than the window."""
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    wrong = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
    assert not [event for event in browser.events if event["method"] in wrong]
    logged = [event for event in browser.events if event["method"] == "Runtime.consoleAPICalled"]
    assert not [event for event in logged if event["params"]["type"] in ("error", "warning", "assert")]
    requests = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert all(url.startswith(("file://", "about:blank")) for url in requests), requests


def wait_for_texts(browser, selector, expected):
    of_all = f"[...document.querySelectorAll({json.dumps(selector)})].map(element => element.textContent)"
    wait(browser, f"{of_all}.join('|') === {json.dumps('|'.join(expected))}")


def bits(model, tokenizer, text):
    """The losses of all characters of a text but the first."""
    with functions_run_eagerly():
        return keras_seq.score(model, tokenizer, text).token_losses[1:] / math.log(2)


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(element => element.textContent)")


def values(browser):
    return browser.run("[...document.querySelectorAll('textarea')].map(area => area.value)")


def type_text(browser, text, position=None):
    """Type at a position of the first column, at the end by default."""
    browser.run(f"""(() => {{
      const area = document.querySelector("textarea"), at = {json.dumps(position)} ?? area.value.length;
      area.focus();
      area.setSelectionRange(at, at);
    }})()""")
    browser.send("Input.insertText", text=text)


@every_view
def test_one_types_and_sees_the_loss_of_each_character(browser, page, models, view):
    opened(browser, page, view)
    everything_read(browser)
    before = values(browser)[0]
    type_text(browser, "Return the zoo")
    wait(browser, f"document.querySelector('textarea').value.length === {len(before) + 14}")
    after = before + "Return the zoo"
    losses = [bits(model, tokenizer, after) for model, tokenizer in models]
    wait_for_texts(browser, ".mean", [f"{loss.mean():.2f} bits per character" for loss in losses])
    assert values(browser) == [after] * 2
    shades = browser.run("""[...document.querySelectorAll("pre")].map(pre =>
      [...pre.querySelectorAll("span:not(.end)")].map(span => Number(span.style.getPropertyValue("--n"))))""")
    full = math.log2(models[0][1].vocabulary_size)
    for loss, column in zip(losses, shades, strict=True):  # the first character has no loss; shades are in steps
        np.testing.assert_allclose(column, [0, *np.minimum(1, loss / full)], atol=0.0101)
    colors = browser.run("""[...document.querySelectorAll("pre span:not(.end)")].map(span =>
      getComputedStyle(span).backgroundColor)""")
    assert len({*colors}) > 20
    check_nothing_went_wrong(browser)


@often("view", [*VIEWS], ("wide, light", "phone, dark"))  # a phone has taps
def test_one_points_at_a_character_and_sees_what_the_models_expected(browser, page, models, view):
    opened(browser, page, view)
    everything_read(browser)
    text, t = values(browser)[0], 21
    if view.startswith("phone"):  # one taps, and the character after the caret is marked
        browser.run(f"""(() => {{
          const area = document.querySelector("textarea");
          area.focus();
          area.setSelectionRange({t}, {t});
        }})()""")
    else:
        x, y = browser.run(f"""(() => {{
          const {{left, right, top, bottom}} = document.querySelectorAll("pre span")[{t}].getBoundingClientRect();
          return [(left + right) / 2, (top + bottom) / 2];
        }})()""")
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    wait(browser, "[...document.querySelectorAll('.expected')].every(said => said.textContent.includes(' bits'))")
    found = browser.run("""[...document.querySelectorAll(".next ol")].map(list =>
      [...list.querySelectorAll("li:not([hidden])")].map(row => row.textContent.trim()))""")
    for (model, tokenizer), rows in zip(models, found, strict=True):
        logits = np.asarray(model(tokenizer.encode(text[:t])[None]))[0, -1]
        likeliest = [tokenizer.decode([n]) for n in np.argsort(-logits, kind="stable")[:5]]
        assert len(rows) == 5
        for row, character in zip(rows, likeliest, strict=True):
            assert row.startswith({" ": "·", "\n": "⏎"}.get(character, character))
    pictures = texts(browser, ".view")
    assert "forget gate" in pictures[0]
    assert "Head 4" in pictures[1]
    assert browser.run("document.querySelectorAll('pre')[1].querySelector('[style*=\"--look\"]') !== null")
    check_nothing_went_wrong(browser)


def test_a_head_is_chosen_by_mouse_and_by_keyboard(browser, page):
    opened(browser, page)
    everything_read(browser)
    wait(browser, "document.querySelectorAll('.head button').length > 4")
    pressed = "[...document.querySelectorAll('.head button')].findIndex(one => one.ariaPressed === 'true')"
    x, y = browser.run("""(() => {
      const button = document.querySelectorAll(".head button")[2];
      button.scrollIntoView({block: "center"});
      const {left, right, top, bottom} = button.getBoundingClientRect();
      return [(left + right) / 2, (top + bottom) / 2];
    })()""")
    event = {"x": x, "y": y, "button": "left", "clickCount": 1}
    browser.send("Input.dispatchMouseEvent", type="mousePressed", **event)
    browser.run("new Promise(done => setTimeout(done, 300))")  # frames in which the pictures may be drawn anew
    browser.send("Input.dispatchMouseEvent", type="mouseReleased", **event)
    wait(browser, f"{pressed} === 2")
    browser.run("document.querySelectorAll('.head button')[3].focus()")
    browser.run("new Promise(done => setTimeout(done, 300))")
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r"
        )
    wait(browser, f"{pressed} === 3")
    wait(browser, "document.activeElement.textContent === 'Head 3'")
    check_nothing_went_wrong(browser)


@every_view
def test_a_model_writes_on_what_generate_writes(browser, page, models, view):
    opened(browser, page, view)
    everything_read(browser)
    browser.run("document.querySelector('#speed').value = '0'")
    before = values(browser)[0]
    for number, (model, tokenizer) in enumerate(models):
        prompt = values(browser)[0]
        browser.run(f"document.querySelectorAll('.write')[{number}].click()")
        wait(browser, f"document.querySelector('textarea').value.length >= {len(prompt) + 40}")
        browser.send("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
        wait(browser, f"document.querySelectorAll('.write')[{number}].textContent === 'Write on'")
        everything_read(browser)
        first, second = values(browser)
        assert first == second
        count = len(first) - len(prompt)
        assert first == keras_seq.generate(model, tokenizer, prompt, count, temperature=0.8, seed=1, top_p=0.95)
    assert values(browser)[0].startswith(before)
    check_nothing_went_wrong(browser)


def test_an_edit_and_a_bar_say_what_they_change(browser, page, models):
    opened(browser, page)
    everything_read(browser)
    text = values(browser)[0]
    type_text(browser, "Q", position=20)
    wait(
        browser,
        "[...document.querySelectorAll('.changes')].every(said => said.textContent.includes('later character'))",
    )
    changed = text[:20] + "Q" + text[20:]
    for number, loaded in enumerate(models):
        differences = bits(*loaded, changed)[20:] - bits(*loaded, text)[19:]
        count = int((abs(differences) > 0.05).sum())
        said = f"document.querySelectorAll('.changes')[{number}].textContent"
        near = "|".join(map(str, (count - 1, count, count + 1)))  # a difference of 0.05 may be rounded
        wait(browser, rf"/^({near}) of {len(differences)} later characters/.test({said})")
    browser.run("document.querySelector('#forget').click()")  # at the caret, after the Q
    wait(browser, "document.querySelectorAll('pre .forget').length === 2")
    parts = changed[:21], changed[21:]
    losses = [np.concatenate([bits(*loaded, part) for part in parts]) for loaded in models]
    wait_for_texts(browser, ".mean", [f"{loss.mean():.2f} bits per character" for loss in losses])
    browser.run("document.querySelector('#forget').click()")
    wait(browser, "!document.querySelectorAll('pre .forget').length")
    check_nothing_went_wrong(browser)


def test_a_bar_goes_with_all_the_text_before_it(browser, page):
    opened(browser, page)
    everything_read(browser)
    text = values(browser)[0]
    browser.run("""(() => {
      const area = document.querySelector("textarea");
      area.focus();
      area.setSelectionRange(3, 3);
    })()""")
    wait(browser, "document.querySelectorAll('pre')[0].querySelectorAll('span')[3].matches('.marked')")
    browser.run("document.querySelector('#forget').click()")
    wait(browser, "document.querySelectorAll('pre .forget').length === 2")
    browser.run("document.querySelector('textarea').setSelectionRange(0, 3)")
    browser.send("Input.insertText", text="")
    wait(browser, f"document.querySelectorAll('textarea')[1].value === {json.dumps(text[3:])}")
    assert not browser.run("document.querySelectorAll('pre .forget').length")
    assert browser.run("document.querySelector('#remember').hidden")
    check_nothing_went_wrong(browser)


def test_each_picture_is_drawn(browser, page):
    opened(browser, page)
    everything_read(browser)
    wait(browser, "document.querySelectorAll('.views')[1].options.length >= 3")
    for number in range(2):
        options = browser.run(f"[...document.querySelectorAll('.views')[{number}].options].map(option => option.value)")
        for option in options:
            browser.run(f"""(() => {{
              const views = document.querySelectorAll(".views")[{number}];
              views.value = {json.dumps(option)};
              views.dispatchEvent(new Event("change"));
            }})()""")
            wait(browser, f"document.querySelectorAll('.view')[{number}].children.length")
    check_nothing_went_wrong(browser)


@often("name", LANGUAGE_MODELS, ("gru",))
def test_the_engine_computes_and_writes_in_the_browser_what_keras_does(browser, tmp_path, name):
    model, ids = small(name), some_ids(CONTEXT)
    export_page([model], tmp_path / "page.html", [TOKENIZER])
    opened(browser, tmp_path / "page.html")
    steps = browser.run(f"""(() => {{
      const model = KerasSeq.load(document)[0], names = model.spec.state.map(part => part.name);
      let state = model.initialState();
      return {ids}.map(id => {{
        const result = model.step(id, state);
        state = result.state;
        return {{
          logits: [...result.logits],
          state: Object.fromEntries(state.map((part, n) => [names[n], [...part]])),
        }};
      }});
    }})()""")
    check_steps(model, steps, ids)
    texts = browser.run("""[0, 1, 2, 3, 4].map(seed => {
      const model = KerasSeq.load(document)[0], reader = new KerasSeq.Reader(model);
      const writer = new KerasSeq.Writer(reader, { temperature: 0.8, topP: 0.95, seed });
      let text = "a 𝄞é";
      for (let n = 0; n < 40; n++) {
        reader.setText(model.encode(text), []);
        while (!reader.advance(100));
        text += model.characters[writer.next()];
      }
      return text;
    })""")
    options = {"temperature": 0.8, "top_p": 0.95}
    assert texts == [keras_seq.generate(model, TOKENIZER, "a 𝄞é", 40, seed=seed, **options) for seed in range(5)]


def test_text_that_looks_like_a_program_is_text(browser, tmp_path):
    path, _ = hostile_page(tmp_path)
    opened(browser, path)
    everything_read(browser)
    page = path.read_text(encoding="utf-8")
    data = json.loads(page.split('id="page-data">')[1].split("</script>")[0])
    assert texts(browser, "h1") == [data["title"]]
    assert data["title"] in texts(browser, "#story")[0]
    (shown,) = values(browser)
    assert shown.replace("\x00", "") == data["text"].replace("\x00", "")
    assert browser.run("document.querySelectorAll('script').length") == 5
    check_nothing_went_wrong(browser)


@pytest.mark.parametrize("part", ["a weight", "the models"])
def test_a_page_that_is_cut_off_says_so(browser, page, tmp_path, part):
    whole = page.read_text(encoding="utf-8")
    start = whole.index('class="weights">')
    cut = tmp_path / "cut.html"
    cut.write_text(
        whole[: start + 5000]
        if part == "the models"
        else whole[: start + 5000] + "</script>" + whole[whole.index("</script>", start) + 9 :],
        encoding="utf-8",
    )
    opened(browser, cut)
    said = {"a weight": "The weights of lstm are damaged", "the models": "The page ends too early"}[part]
    assert said in browser.run("document.querySelector('#problem').innerText")
    assert browser.run("document.querySelector('#main').hidden")
    check_nothing_went_wrong(browser)
