"""One self-contained HTML page: no file beside it, nothing from a network, light or dark as the reader's device is.

    background of a token = the page's colour and one hue, mixed in oklab by a number from 0 to 1

Mixed in oklab, equal steps of the number look like equal steps. The number stands in the token's style, so the colours
are there without JavaScript too; what hovering and tapping tell is JavaScript.
"""

import html
import json

from keras_seq.tokenizers.show_whitespace import escape_control

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1b1f; --faint: #63636e; --line: #d5d5de;
  --hot: #f2762e; --cold: #4a9be0; }
@media (prefers-color-scheme: dark) { :root { --page: #141418; --ink: #ececf1; --faint: #a0a0ac; --line: #3a3a44;
  --hot: #b8441a; --cold: #1d62a8; } }
body { margin: 0 auto; max-width: 52rem; padding: 1rem 1rem 0; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.2rem 0 .4rem; }
p, .faint { color: var(--faint); margin: .3rem 0; }
.text, code { font: 1rem/1.7 ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.text { margin: 1rem 0; }
.text s, .scale s { text-decoration: none; color: var(--faint); }
.text s::before { content: "\\23ce"; }
[style*="--n"] { background: color-mix(in oklab, var(--hue, var(--hot)) calc(100% * var(--n)), var(--page)); }
.text span { cursor: pointer; padding: .15em 0; scroll-margin: 6rem; }
.text .picked { outline: 2px solid var(--ink); border-radius: 2px; }
.text span:target { outline: 2px dashed var(--ink); border-radius: 2px; }
.scale { display: flex; align-items: center; gap: .5rem; font-size: .85rem; color: var(--faint); flex-wrap: wrap; }
.scale i { display: inline-block; width: 1rem; height: 1rem; }
.scale div { display: flex; border: 1px solid var(--line); }
a { color: inherit; }
.told { position: sticky; bottom: 0; background: var(--page); border-top: 1px solid var(--line); padding: .6rem 0;
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


def named(run) -> str:
    """What a page calls a run: its folder and the one around it, not where they are."""
    return "/".join(run.resolve().parts[-2:])


def percent(p) -> str:
    """A probability: 37 %, 0.6 %, 0.0002 %; as the JavaScript above has it."""
    return f"{100 * p:.0f} %" if p >= 0.01 else f"{100 * p:.1g} %" if p >= 1e-6 else "under 0.0001 %"


def escaped(text) -> str:
    """The text as HTML that shows every character of it: none is markup, and none changes the page around it."""
    return html.escape("".join(c if c in "\n\t" else escape_control(c) for c in text))


def token(text, **attributes) -> str:
    """A span with the text, its line breaks marked and kept."""
    named = "".join(f' {name}="{html.escape(str(value))}"' for name, value in attributes.items())
    return f"<span{named}>{escaped(text).replace(chr(10), '<s></s>' + chr(10))}</span>"


def scale(low, high, hue="--hot") -> str:
    """A legend: eleven steps of the hue between two words."""
    steps = "".join(f'<i style="--n:{n / 10};--hue:var({hue})"></i>' for n in range(11))
    return f'<div class="scale">{escaped(low)} <div>{steps}</div> {escaped(high)}</div>'


def page(title, body, script, style="", data=None) -> str:
    """A whole document.

    Args:
        title: of the page and its first heading; a text.
        body: HTML.
        script: JavaScript, to run behind `SCRIPT` when the body is there.
        style: CSS behind `STYLE`.
        data: what JSON knows; the script finds it as `data`.
    """
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escaped(title)}</title>\n<style>{STYLE}{style}</style>\n</head>\n<body>\n<h1>{escaped(title)}</h1>",
        body,
    ]
    if data is not None:
        parts.append(f'<script type="application/json" id="data">{_json(data)}</script>')
        script = f'const data = JSON.parse(document.getElementById("data").textContent);\n{script}'
    return "\n".join([*parts, f"<script>{SCRIPT}{script}</script>", "</body>\n</html>\n"])


def _json(data) -> str:
    """JSON in ASCII that holds no markup."""
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written
