"""The page of `experiments.inspect`: hover over a character to see what the model expects behind it, and why.

The text, the likeliest next tokens, and the numbers of `Reading` as JSON; a little JavaScript shows those of one place:
where a Transformer's heads look from there, or which units of a recurrent layer are most active there.
"""

from experiments import pages
from experiments.inspect_reading import SIGNALS, Reading, most_varied

STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
select, input, button { font: inherit; color: inherit; background: var(--page); border: 1px solid var(--line);
  border-radius: 4px; padding: .2rem .4rem; }
input { width: 5rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 0 2rem;
  margin-bottom: 2rem; }
.row { display: grid; grid-template-columns: 6.5rem 1fr 4.5rem; gap: .5rem; align-items: center; width: 100%;
  border: 0; padding: .15rem 0; text-align: left; }
button.row { cursor: pointer; }
button.row:hover, .row.chosen { outline: 1px solid var(--faint); }
.row code { line-height: 1.4; white-space: nowrap; overflow: hidden; }
.row u { display: block; height: .9rem; border-radius: 2px; background: var(--hot); min-width: 1px; }
.row u.negative { background: var(--cold); }
.row b { font-weight: normal; text-align: right; white-space: nowrap; }
"""
SCRIPT = """
const byId = id => document.getElementById(id), spans = [...byId("text").children], MOST = 8;
let place = spans.length - 1;

function make(kind, parent, text, name) {
  const made = parent.appendChild(document.createElement(kind));
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

function select(label, options) {
  const made = make("select", make("label", byId("controls"), label + " "), "");
  for (const [value, text] of options) make("option", made, text).value = value;
  made.addEventListener("change", show);
  return made;
}

// A line with a bar: its label, how long it is (-1 to 1), and what it says at the end.
function bar(parent, label, length, end, kind = "div") {
  const row = make(kind, parent, "", "row");
  make("code", row, label);
  const drawn = make("u", make("span", row, ""), "", length < 0 ? "negative" : "");
  drawn.style.width = 100 * Math.min(1, Math.abs(length)) + "%";
  make("b", row, end);
  return row;
}

function colour(span, value) {
  span.style.setProperty("--n", Math.min(1, Math.abs(value)).toFixed(3));
  span.style.setProperty("--hue", value < 0 ? "var(--cold)" : "var(--hot)");
}

const quoted = at => "“" + visible(data.pieces[at]) + "”";
const largest = (values, size) => values.map((value, n) => n).sort((a, b) => size(values[b]) - size(values[a]));

function showNext() {
  const list = byId("next"), [comes, chance] = data.next[place] || [];
  list.replaceChildren();
  make("h2", list, "What it expects behind " + quoted(place));
  const mark = rank => rank === comes ? "  ←" : "";
  data.top[place].forEach(([piece, p], rank) => bar(list, visible(piece) + mark(rank), p, percent(p)));
  make("p", list, comes === undefined ? "This is the last of the text."
    : "What comes: " + quoted(place + 1) + ", its choice number " + (comes + 1) + ", with " + percent(chance) + ".");
}

function attention() {
  const blocks = Object.keys(data.attention);
  const block = select("Block", blocks.map(name => [name, name]));
  const head = select("Head",
    [["", "mean of all"], ...data.attention[blocks[0]].map((_, n) => [n, n + 1])]);
  return () => {
    const heads = data.attention[block.value].map(head => head[place]);
    const mean = at => heads.reduce((sum, weights) => sum + weights[at], 0) / heads.length;
    const weights = head.value === "" ? heads[0].map((_, at) => mean(at)) : heads[head.value];
    spans.forEach((span, at) => colour(span, at <= place ? Math.sqrt(weights[at]) : 0));
    const list = byId("looks");
    list.replaceChildren();
    make("h2", list, "Where it looks from " + quoted(place));
    for (const at of largest(weights, Math.abs).slice(0, MOST)) {
      const back = at === place ? "itself" : place - at + " back";
      bar(list, visible(data.pieces[at]) + "  " + back, weights[at], percent(weights[at]));
    }
  };
}

function activations() {
  const layers = Object.keys(data.activations), signalsOf = layer => Object.keys(data.activations[layer]);
  const layer = select("Layer", layers.map(name => [name, name]));
  const signal = select("Signal", signalsOf(layers[0]).map(letter => [letter, data.signals[letter]]));
  const unit = make("input", make("label", byId("controls"), "Unit "), "");
  Object.assign(unit, { type: "number", min: 0 });
  const begin = () => { unit.value = data.varied[layer.value]; };
  begin();
  layer.addEventListener("change", () => { begin(); show(); });
  unit.addEventListener("input", show);
  return () => {
    const rows = data.activations[layer.value][signal.value];
    unit.max = rows[0].length - 1;
    const bounded = "ifogh".includes(signal.value);
    const shown = Math.min(unit.max, Math.max(0, Math.round(unit.value) || 0));
    const most = bounded ? 1 : Math.max(1e-6, ...rows.map(row => Math.abs(row[shown])));
    spans.forEach((span, at) => colour(span, rows[at][shown] / most));
    const list = byId("looks"), here = rows[place];
    list.replaceChildren();
    make("h2", list, "The most active units at " + quoted(place) + ": " + data.signals[signal.value]);
    const order = largest(here, Math.abs).slice(0, MOST), longest = bounded ? 1 : Math.abs(here[order[0]]) || 1;
    for (const n of order) {
      const row = bar(list, "unit " + n, here[n] / longest, here[n].toFixed(3), "button");
      if (n === shown) row.classList.add("chosen");
      row.addEventListener("click", () => { unit.value = n; show(); });
    }
    const scale = bounded ? "" : ", full colour at " + most.toFixed(3);
    make("p", list, "The text shows unit " + shown + ": " + here[shown].toFixed(3) + " here; positive orange, "
      + "negative blue" + scale + ". Press another unit to see it.");
  };
}

const showMore = Object.keys(data.attention).length ? attention() : activations();
function show() { showNext(); showMore(); }
pick(byId("text"), span => { place = spans.indexOf(span); show(); })(spans[place]);
"""


def page_data(reading: Reading) -> dict:
    """What the page shows, rounded: probabilities to five digits, attention to five places, activations to three."""
    return {
        "pieces": list(reading.pieces),
        "top": [[[piece, _digits(p)] for piece, p in row] for row in reading.likeliest()],
        "next": [[rank, _digits(p)] for rank, p in reading.nexts()],
        "attention": {
            name: [[_places(row[: t + 1], 5) for t, row in enumerate(head)] for head in maps]
            for name, maps in reading.attention.items()
        },
        "activations": {
            name: {letter: [_places(row, 3) for row in signal] for letter, signal in signals.items()}
            for name, signals in reading.activations.items()
        },
        "varied": {
            name: int(most_varied(next(iter(signals.values())), 1)[0]) for name, signals in reading.activations.items()
        },
        "signals": SIGNALS,
    }


def _digits(p) -> float:
    return float(f"{p:.5g}")


def _places(row, places) -> list[float]:
    return [round(float(value), places) for value in row]


def inspect_page(reading: Reading, run: str) -> str:
    """The page, as HTML.

    Args:
        reading: what the model did.
        run: what it is called.
    """
    if reading.attention:
        colours = "Coloured is where the chosen head looks from the marked place (the square root of the attention)."
    else:
        colours = "Coloured is what the chosen unit does over the text."
    body = [
        f"<p>Hover over the text, tap it, or go along it with the arrow keys. {colours}</p>",
        '<div class="controls" id="controls"></div>',
        f'<div class="text" id="text">{"".join(map(pages.token, reading.pieces))}</div>',
        '<div class="columns"><div id="next"></div><div id="looks"></div></div>',
        "<noscript><p>The numbers need JavaScript.</p></noscript>",
    ]
    return pages.page(f"Inside {run}", "\n".join(body), SCRIPT, STYLE, page_data(reading))
