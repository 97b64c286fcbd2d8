import html.parser
import json
import sys
import unicodedata

import pytest

from keras_seq.reports import pages
from keras_seq.tokenizers.base import escape_control

HOSTILE = "</span><script>alert(\"1\")</script> & 'two' &lt; </div>\n\t<b onclick=x>`${y}` {{ z }} {% raw %}"
BODY = """{% extends "common/page.html" %}{% block body %}<div class="text" id="text">
{%- for token in tokens %}<span title="{{ token }}">{{ token | mark_lines }}</span>{% endfor -%}
</div>{{ title | breakable }}{% endblock %}"""


class Reader(html.parser.HTMLParser):
    """The text and the attributes of the direct children of #text, and every tag of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.tokens, self.attributes, self.open = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append((tag, dict(attributes)))
        if tag == "span" and self.inside_text():
            self.tokens.append("")
            self.attributes.append(dict(attributes))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.open and self.inside_text() and self.tokens:
            self.tokens[-1] += data

    def inside_text(self):
        return any(attributes.get("id") == "text" for _, attributes in self.open)


@pytest.fixture
def render(tmp_path, monkeypatch):
    """Render BODY as the page of an experiment."""
    (tmp_path / "page.html").write_text(BODY, encoding="utf-8")
    loader = pages.jinja2.ChoiceLoader([pages.TEMPLATES.loader, pages.jinja2.FileSystemLoader(tmp_path.parent)])
    monkeypatch.setattr(pages.TEMPLATES, "loader", loader)
    return lambda *tokens, title="a_b", data=None: pages.render(tmp_path.name, data, title=title, tokens=tokens)


def test_no_character_is_markup_or_lost(render):
    characters = [chr(n) for n in range(1, 0x3000)] + list("\ufeff\uffff猫😀\U0001f1e6")
    tokens = Reader(render(*characters)).tokens
    for character, token in zip(characters, tokens, strict=True):
        hidden = unicodedata.category(character) in ("Cc", "Cf") and character not in "\n\t"
        assert token == (f"⟨U+{ord(character):04X}⟩" if hidden else character)


def test_a_text_that_is_markup_stays_text_everywhere(render):
    hostile, plain = (Reader(render(text, title=text, data={"text": text})) for text in (HOSTILE, "plain"))
    assert hostile.tokens == [HOSTILE]
    assert hostile.attributes == [{"title": HOSTILE}]
    assert [tag for tag in hostile.tags if tag not in ("s", "wbr")] == plain.tags
    assert escape_control("\u202e") in render(title="_\u202e_")
    assert "\u202e" not in render("\u202e", title="_\u202e_")


def test_the_data_arrive_as_they_are_and_as_ascii_without_markup(render):
    data = {"text": HOSTILE + "\u2028猫</script>", "numbers": [0.1, 1e-9, None], "a": 1}
    written = render(data=data).split('id="data">')[1].split("</script>")[0]
    assert list(json.loads(written).items()) == list(data.items())
    assert written.isascii()
    assert not set("<>&'") & set(written)
    with pytest.raises(ValueError, match="JSON"):
        render(data=[float("nan")])


def test_a_page_needs_nothing_from_elsewhere(render):
    page = render("a", "b", data={})
    for sign in ("http", "url(", "@import", "src=", "<link", "//cdn"):
        assert sign not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_a_value_that_a_template_lacks_is_an_error():
    with pytest.raises(pages.jinja2.UndefinedError):
        pages.render("score", title="t")


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (1, "100 %"),
        (0.372, "37 %"),
        (0.01, "1 %"),
        (0.0061, "0.6 %"),
        (2e-6, "0.0002 %"),
        (sys.float_info.min, "under"),
    ],
)
def test_a_probability_is_formatted_to_a_digit_or_two(p, text):
    assert pages.percent(p).startswith(text)
