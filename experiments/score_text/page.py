"""HTML page of `experiments.score_text`: a text whose tokens are colored by their loss.

no color: probability 1          full color: log V nats or more, no better than a uniform guess among V tokens
"""

import math

import numpy as np

from experiments.frame import pages as html_page
from keras_seq.evaluation import TextScore
from keras_seq.tokenizers.show_whitespace import show_whitespace

CONTEXT_CHARACTERS = 20  # shown on each side of a token with a high loss
SCRIPT = """
const tooltip = document.getElementById("tooltip");
pick(document.getElementById("text"), span => {
  const loss = parseFloat(span.dataset.loss), token = "“" + visible(span.textContent) + "”";
  tooltip.textContent = isNaN(loss)
    ? token + " is the first token; it is not predicted."
    : token + ": " + loss.toFixed(3) + " nats, probability " + percent(Math.exp(-loss));
});
"""


def highest_losses(score: TextScore, top: int) -> list[int]:
    """Return the indices of the tokens with the highest loss, in descending order.

    Args:
        score: The scored text.
        top: Number of tokens.
    """
    return (1 + np.argsort(-score.token_losses[1:], kind="stable")[:top]).tolist()


def token_context(score: TextScore, index: int) -> tuple[str, str, str]:
    """Return the text before a token, the token, and the text after it.

    Args:
        score: The scored text.
        index: Index of the token.
    """
    prefix = "".join(score.tokens[max(0, index - CONTEXT_CHARACTERS) : index])
    suffix = "".join(score.tokens[index + 1 : index + 1 + CONTEXT_CHARACTERS])
    return prefix[-CONTEXT_CHARACTERS:], score.tokens[index], suffix[:CONTEXT_CHARACTERS]


def score_page(score: TextScore, run: str, vocabulary_size: int, top: int) -> str:
    """Return the page as HTML.

    Args:
        score: The scored text.
        run: Label of the run.
        vocabulary_size: V, for the color scale.
        top: Number of tokens with the highest loss to list.
    """
    uniform_loss = math.log(vocabulary_size)
    shades = np.clip(score.token_losses / uniform_loss, 0, 1)
    spans = [html_page.token(score.tokens[0], id="t0")]
    for index in range(1, len(score.tokens)):
        loss = f"{score.token_losses[index]:.4f}"
        attributes = {"style": f"--n:{shades[index]:.2f}", "data-loss": loss, "id": f"t{index}"}
        spans.append(html_page.token(score.tokens[index], **attributes))
    means = f"{score.loss_per_character:.4f} nats per character, {score.bits_per_character:.4f} bits per character"
    body = [
        f"<p>{means}; {score.num_characters:,} characters, each predicted from the text before it.</p>",
        html_page.color_legend("0 nats: certain", f"{uniform_loss:.1f} nats or more: no better than a uniform guess"),
        f'<div class="text" id="text">{"".join(spans)}</div>',
        _list(score, highest_losses(score, top)) if top else "",
        '<div class="tooltip" id="tooltip">Hover over the text or tap it; the arrow keys move along it.</div>',
    ]
    return html_page.page(f"Token losses of {run}", "\n".join(body), SCRIPT)


def _list(score, indices) -> str:
    """Format the tokens with the highest loss, with a link to each."""
    lines = []
    for index in indices:
        prefix, token, suffix = (html_page.escape(show_whitespace(text)) for text in token_context(score, index))
        link = f'<a href="#t{index}">{prefix}<b>[{token}]</b>{suffix}</a>'
        lines.append(f"<li>{score.token_losses[index]:.2f} nats <code>{link}</code></li>")
    return f"<h2>Tokens with the highest loss</h2>\n<ol>{''.join(lines)}</ol>"
