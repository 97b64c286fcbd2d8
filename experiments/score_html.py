"""The page of `experiments.score`: a text whose tokens are coloured by their nats.

no colour: the model was sure of it          full colour: log V nats or more, no better than a guess among V tokens
"""

import math

import numpy as np

from experiments import pages
from keras_seq.evaluation import TextScore
from keras_seq.tokenizers.show_whitespace import show_whitespace

AROUND = 20  # characters shown before and behind a surprising token
SCRIPT = """
const told = document.getElementById("told");
pick(document.getElementById("text"), span => {
  const nats = parseFloat(span.dataset.nats), token = "“" + visible(span.textContent) + "”";
  told.textContent = isNaN(nats)
    ? token + " is the first: nothing stands before it that could predict it."
    : token + ": " + nats.toFixed(3) + " nats, probability " + percent(Math.exp(-nats));
});
"""


def surprises(scored: TextScore, top: int) -> list[int]:
    """The places of the tokens that cost most, the dearest first."""
    return (1 + np.argsort(-scored.nats[1:], kind="stable")[:top]).tolist()


def around(scored: TextScore, place: int) -> tuple[str, str, str]:
    """What stands before a token, the token, and what stands behind it."""
    before = "".join(scored.pieces[max(0, place - AROUND) : place])
    behind = "".join(scored.pieces[place + 1 : place + 1 + AROUND])
    return before[-AROUND:], scored.pieces[place], behind[:AROUND]


def score_page(scored: TextScore, run, vocabulary_size: int, top: int) -> str:
    """The page, as HTML.

    Args:
        scored: the text and its nats.
        run: what the model is called.
        vocabulary_size: V, for the scale.
        top: how many of the most surprising places to list.
    """
    guess = math.log(vocabulary_size)
    shades = np.clip(scored.nats / guess, 0, 1)
    tokens = [pages.token(scored.pieces[0], id="t0")]
    for place in range(1, len(scored.pieces)):
        numbers = {"style": f"--n:{shades[place]:.2f}", "data-nats": f"{scored.nats[place]:.4f}", "id": f"t{place}"}
        tokens.append(pages.token(scored.pieces[place], **numbers))
    numbers = f"{scored.nats_per_character:.4f} nats per character, {scored.bits_per_character:.4f} bits per character"
    body = [
        f"<p>{numbers}; {scored.characters:,} characters, each predicted from all that stands before it.</p>",
        pages.scale("0 nats: sure", f"{guess:.1f} nats or more: no better than a guess"),
        f'<div class="text" id="text">{"".join(tokens)}</div>',
        _list(scored, surprises(scored, top)) if top else "",
        '<div class="told" id="told">Hover over the text or tap it; then the arrow keys go on from there.</div>',
    ]
    return pages.page(f"How surprised {run} is", "\n".join(body), SCRIPT)


def _list(scored, places) -> str:
    """The most surprising places, with a link to each."""
    lines = []
    for place in places:
        before, piece, behind = (pages.escaped(show_whitespace(text)) for text in around(scored, place))
        shown = f'<a href="#t{place}">{before}<b>[{piece}]</b>{behind}</a>'
        lines.append(f"<li>{scored.nats[place]:.2f} nats <code>{shown}</code></li>")
    return f"<h2>The most surprising places</h2>\n<ol>{''.join(lines)}</ol>"
