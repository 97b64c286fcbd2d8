"""Build self-contained HTML pages: no other files, no network, light or dark by the device's setting.

    background of a token = the page's color and one hue, mixed in oklab by a number from 0 to 1

In oklab, equal steps of the number look equally large. The number is in the token's `style`, so the colors need no
JavaScript; only the details shown on hovering and tapping do.
"""

import html
import json
import pathlib
from typing import Any

from keras_seq.tokenizers.show_whitespace import escape_control

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1b1f; --faint: #63636e; --line: #d5d5de;
  --color-high: #f2762e; --color-low: #4a9be0; }
@media (prefers-color-scheme: dark) { :root { --page: #141418; --ink: #ececf1; --faint: #a0a0ac; --line: #3a3a44;
  --color-high: #b8441a; --color-low: #1d62a8; } }
body { margin: 0 auto; max-width: 52rem; padding: 1rem 1rem 0; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
p, .faint { color: var(--faint); margin: .3rem 0; }
.text, code { font: 1rem/1.7 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.text { margin: 1rem 0; }
.text s, .color-legend s { text-decoration: none; color: var(--faint); }
.text s::before { content: "\\23ce"; }
[style*="--n"] { background: color-mix(in oklab, var(--hue, var(--color-high)) calc(100% * var(--n)), var(--page)); }
.text span { cursor: pointer; padding: .15em 0; scroll-margin: 6rem; }
.text .picked { outline: 2px solid var(--ink); border-radius: 2px; }
.text span:target { outline: 2px dashed var(--ink); border-radius: 2px; }
.color-legend { display: flex; align-items: center; gap: .5rem; font-size: .85rem; color: var(--faint);
  flex-wrap: wrap; }
.color-legend i { display: inline-block; width: 1rem; height: 1rem; }
.color-legend div { display: flex; border: 1px solid var(--line); }
a { color: inherit; }
.tooltip { position: sticky; bottom: 0; background: var(--page); border-top: 1px solid var(--line); padding: .6rem 0;
  min-height: 1.5rem; }
"""
SCRIPT = """
const visible = text => text.replace(/ /g, "·").replace(/\\n/g, "⏎").replace(/\\t/g, "⇥");
const percent = p => (p >= 0.01 ? (100 * p).toFixed(0) : p >= 1e-6 ? Number((100 * p).toPrecision(1)) : "under 0.0001")
  + " %";

// Calls show(span) for the span of the container that is hovered over, tapped, or reached by the arrow keys.
function pick(container, show) {
  let picked = null;
  const at = span => {
    if (!span || span === picked) return;
    if (picked) picked.classList.remove("picked");
    picked = span;
    picked.classList.add("picked");
    show(picked);
  };
  const under = event => at(event.target.closest("#" + container.id + " > span"));
  container.addEventListener("pointerover", under);
  container.addEventListener("click", under);
  document.addEventListener("keydown", event => {
    if (!picked || document.activeElement.matches("select, input, a")) return;
    if (event.key === "ArrowLeft") at(picked.previousElementSibling);
    if (event.key === "ArrowRight") at(picked.nextElementSibling);
  });
  return at;
}
"""


def run_label(run: pathlib.Path) -> str:
    """Return the last two parts of a run's path, as its name on a page: TIME/RUN."""
    return "/".join(run.resolve().parts[-2:])


def percent(p: float) -> str:
    """Format a probability as 37 %, 0.6 % or 0.0002 %, like `percent` in `SCRIPT`."""
    return f"{100 * p:.0f} %" if p >= 0.01 else f"{100 * p:.1g} %" if p >= 1e-6 else "under 0.0001 %"


def escape(text: str) -> str:
    """Escape markup and control characters, so that every character of the text is displayed as text."""
    return html.escape("".join(c if c in "\n\t" else escape_control(c) for c in text))


def token(text: str, **attributes: Any) -> str:
    """Return a span with the text of a token; line breaks are marked and kept.

    Args:
        text: Text of the token.
        **attributes: HTML attributes of the span.
    """
    html_attributes = "".join(f' {name}="{html.escape(str(value))}"' for name, value in attributes.items())
    return f"<span{html_attributes}>{escape(text).replace(chr(10), '<s></s>' + chr(10))}</span>"


def color_legend(low: str, high: str, hue: str = "--color-high") -> str:
    """Return a color legend: eleven shades of a hue between two labels.

    Args:
        low: Label of the lightest shade.
        high: Label of the strongest shade.
        hue: CSS variable of the hue.
    """
    steps = "".join(f'<i style="--n:{n / 10};--hue:var({hue})"></i>' for n in range(11))
    return f'<div class="color-legend">{escape(low)} <div>{steps}</div> {escape(high)}</div>'


def page(title: str, body: str, script: str, style: str = "", data: Any = None) -> str:
    """Return a whole HTML document.

    Args:
        title: Title of the page and its first heading, as plain text.
        body: HTML below the heading.
        script: JavaScript that runs after `SCRIPT` and the body.
        style: CSS after `STYLE`.
        data: Value that JSON can represent, available to the script as `data`.

    Raises:
        ValueError: `data` has a number that is not finite.
    """
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>",
        body,
    ]
    if data is not None:
        parts.append(f'<script type="application/json" id="data">{_json(data)}</script>')
        script = f'const data = JSON.parse(document.getElementById("data").textContent);\n{script}'
    return "\n".join([*parts, f"<script>{SCRIPT}{script}</script>", "</body>\n</html>\n"])


def _json(data) -> str:
    """Encode as ASCII JSON without the characters of markup."""
    encoded = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded
