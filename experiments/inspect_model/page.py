"""HTML page of `experiments.inspect_model`: hover over a token to see predictions, attention weights or activations.

The page has the text, the most likely next tokens, and a `ModelTrace` as JSON. JavaScript shows what belongs to one
position: the attention weights of a Transformer's heads, or the most active units of a recurrent layer.
"""

from experiments.frame import pages as html_page
from experiments.inspect_model.trace import SIGNAL_NAMES, ModelTrace, most_variable_units

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
.row u { display: block; height: .9rem; border-radius: 2px; background: var(--color-high); min-width: 1px; }
.row u.negative { background: var(--color-low); }
.row b { font-weight: normal; text-align: right; white-space: nowrap; }
"""
SCRIPT = """
const byId = id => document.getElementById(id), spans = [...byId("text").children], MAX_BARS = 8;
let position = spans.length - 1;

function addElement(tag, parent, text, className) {
  const element = parent.appendChild(document.createElement(tag));
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function addSelect(label, options) {
  const select = addElement("select", addElement("label", byId("controls"), label + " "), "");
  for (const [value, text] of options) addElement("option", select, text).value = value;
  select.addEventListener("change", show);
  return select;
}

// Adds a row with a label, a bar (length from -1 to 1) and a value.
function addBar(parent, label, length, value, tag = "div") {
  const row = addElement(tag, parent, "", "row");
  addElement("code", row, label);
  const bar = addElement("u", addElement("span", row, ""), "", length < 0 ? "negative" : "");
  bar.style.width = 100 * Math.min(1, Math.abs(length)) + "%";
  addElement("b", row, value);
  return row;
}

function setColor(span, value) {
  span.style.setProperty("--n", Math.min(1, Math.abs(value)).toFixed(3));
  span.style.setProperty("--hue", value < 0 ? "var(--color-low)" : "var(--color-high)");
}

const quoted = index => "“" + visible(data.tokens[index]) + "”";
const sortedByMagnitude = values =>
  values.map((value, index) => index).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));

function showNext() {
  const list = byId("next"), [nextRank, probability] = data.next[position] || [];
  list.replaceChildren();
  addElement("h2", list, "Most likely tokens after " + quoted(position));
  const mark = rank => rank === nextRank ? "  ←" : "";
  data.top[position].forEach(([token, p], rank) => addBar(list, visible(token) + mark(rank), p, percent(p)));
  addElement("p", list, nextRank === undefined ? "This is the last token of the text."
    : "The next token is " + quoted(position + 1) + ": rank " + (nextRank + 1) + ", probability "
      + percent(probability) + ".");
}

function attentionView() {
  const blocks = Object.keys(data.attention);
  const block = addSelect("Block", blocks.map(name => [name, name]));
  const head = addSelect("Head",
    [["", "mean of all"], ...data.attention[blocks[0]].map((_, n) => [n, n + 1])]);
  return () => {
    const heads = data.attention[block.value].map(rows => rows[position]);
    const mean = index => heads.reduce((sum, weights) => sum + weights[index], 0) / heads.length;
    const weights = head.value === "" ? heads[0].map((_, index) => mean(index)) : heads[head.value];
    spans.forEach((span, index) => setColor(span, index <= position ? Math.sqrt(weights[index]) : 0));
    const list = byId("details");
    list.replaceChildren();
    addElement("h2", list, "Attention weights from " + quoted(position));
    for (const index of sortedByMagnitude(weights).slice(0, MAX_BARS)) {
      const distance = index === position ? "itself" : position - index + " back";
      addBar(list, visible(data.tokens[index]) + "  " + distance, weights[index], percent(weights[index]));
    }
  };
}

function activationsView() {
  const layers = Object.keys(data.activations), signalsOf = layer => Object.keys(data.activations[layer]);
  const layer = addSelect("Layer", layers.map(name => [name, name]));
  const signal = addSelect("Signal", signalsOf(layers[0]).map(letter => [letter, data.signals[letter]]));
  const unit = addElement("input", addElement("label", byId("controls"), "Unit "), "");
  Object.assign(unit, { type: "number", min: 0 });
  const selectMostVariable = () => { unit.value = data.mostVariable[layer.value]; };
  selectMostVariable();
  layer.addEventListener("change", () => { selectMostVariable(); show(); });
  unit.addEventListener("input", show);
  return () => {
    const rows = data.activations[layer.value][signal.value];
    unit.max = rows[0].length - 1;
    const bounded = "ifogh".includes(signal.value);
    const selected = Math.min(unit.max, Math.max(0, Math.round(unit.value) || 0));
    const limit = bounded ? 1 : Math.max(1e-6, ...rows.map(row => Math.abs(row[selected])));
    spans.forEach((span, index) => setColor(span, rows[index][selected] / limit));
    const list = byId("details"), values = rows[position];
    list.replaceChildren();
    addElement("h2", list, "Most active units at " + quoted(position) + ": " + data.signals[signal.value]);
    const order = sortedByMagnitude(values).slice(0, MAX_BARS);
    const maximum = bounded ? 1 : Math.abs(values[order[0]]) || 1;
    for (const n of order) {
      const row = addBar(list, "unit " + n, values[n] / maximum, values[n].toFixed(3), "button");
      if (n === selected) row.classList.add("chosen");
      row.addEventListener("click", () => { unit.value = n; show(); });
    }
    const scale = bounded ? "" : ", full color at " + limit.toFixed(3);
    addElement("p", list, "The text shows unit " + selected + ": " + values[selected].toFixed(3) + " at this token; "
      + "positive orange, negative blue" + scale + ". Select another unit to show it.");
  };
}

const showDetails = Object.keys(data.attention).length ? attentionView() : activationsView();
function show() { showNext(); showDetails(); }
pick(byId("text"), span => { position = spans.indexOf(span); show(); })(spans[position]);
"""


def page_data(trace: ModelTrace) -> dict:
    """Return the data of the page, rounded: probabilities to 5 digits, attention to 5 decimals, activations to 3."""
    return {
        "tokens": list(trace.tokens),
        "top": [[[token, _digits(p)] for token, p in row] for row in trace.top_predictions()],
        "next": [[rank, _digits(p)] for rank, p in trace.next_token_ranks()],
        "attention": {
            name: [[_rounded(row[: t + 1], 5) for t, row in enumerate(head)] for head in maps]
            for name, maps in trace.attention.items()
        },
        "activations": {
            name: {letter: [_rounded(row, 3) for row in signal] for letter, signal in signals.items()}
            for name, signals in trace.activations.items()
        },
        "mostVariable": {
            name: int(most_variable_units(next(iter(signals.values())), 1)[0])
            for name, signals in trace.activations.items()
        },
        "signals": SIGNAL_NAMES,
    }


def _digits(p) -> float:
    return float(f"{p:.5g}")


def _rounded(row, decimals) -> list[float]:
    return [round(float(value), decimals) for value in row]


def inspect_page(trace: ModelTrace, run: str) -> str:
    """Return the page as HTML.

    Args:
        trace: What the model computes.
        run: Label of the run.
    """
    if trace.attention:
        legend = (
            "The color shows the attention weights of the selected head at the selected token (their square roots)."
        )
    else:
        legend = "The color shows the activation of the selected unit at each token."
    body = [
        f"<p>Hover over the text, tap it, or move along it with the arrow keys. {legend}</p>",
        '<div class="controls" id="controls"></div>',
        f'<div class="text" id="text">{"".join(map(html_page.token, trace.tokens))}</div>',
        '<div class="columns"><div id="next"></div><div id="details"></div></div>',
        "<noscript><p>The details need JavaScript.</p></noscript>",
    ]
    return html_page.page(f"Inside {run}", "\n".join(body), SCRIPT, STYLE, page_data(trace))
