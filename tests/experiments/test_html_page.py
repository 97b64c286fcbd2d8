import html.parser
import json
import sys
import unicodedata

import pytest

from experiments.frame import pages as html_page

HOSTILE = "</span><script>alert(\"1\")</script> & 'two' &lt; </div>\n\t<b onclick=x>`${y}`"


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


def body(tokens):
    return f'<div class="text" id="text">{"".join(map(html_page.token, tokens))}</div>'


def test_no_character_is_markup_or_lost():
    characters = [chr(n) for n in range(1, 0x3000)] + list("\ufeff\uffff猫😀\U0001f1e6")
    tokens = Reader(html_page.page("t", body(characters), "")).tokens
    for character, token in zip(characters, tokens, strict=True):
        hidden = unicodedata.category(character) in ("Cc", "Cf") and character not in "\n\t"
        assert token == (f"⟨U+{ord(character):04X}⟩" if hidden else character)


def test_a_text_that_is_markup_stays_text_everywhere():
    plain, hostile = (
        Reader(html_page.page(text, body([text]) + html_page.color_legend(text, text), "", data={"text": text}))
        for text in ("plain", HOSTILE)
    )
    assert hostile.tokens == [HOSTILE]
    assert [tag for tag in hostile.tags if tag != "s"] == plain.tags


def test_attributes_cannot_be_left():
    (attributes,) = Reader(f'<div id="text">{html_page.token("a", title=HOSTILE)}</div>').attributes
    assert attributes == {"title": HOSTILE}


def test_the_data_arrive_as_they_are_and_as_ascii_without_markup():
    data = {"text": HOSTILE + "\u2028猫</script>", "numbers": [0.1, 1e-9, None]}
    page = html_page.page("t", "", "", data=data)
    written = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(written) == data
    assert written.isascii()
    assert not set("<>&") & set(written)
    with pytest.raises(ValueError, match="JSON"):
        html_page.page("t", "", "", data=[float("nan")])


def test_a_page_needs_nothing_from_elsewhere():
    page = html_page.page("t", body("ab") + html_page.color_legend("0", "1"), "", data={})
    for sign in ("http", "url(", "@import", "src=", "<link", "//cdn"):
        assert sign not in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


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
    assert html_page.percent(p).startswith(text)


def test_a_run_is_called_by_its_folders(tmp_path):
    assert html_page.run_label(tmp_path / "20260101-120000" / "lstm-seed0") == "20260101-120000/lstm-seed0"
