const byId = id => document.getElementById(id), spans = [...byId("text").children], MAX_BARS = 8;
let position = spans.length - 1;

function add(parent, tag, text = "", properties = {}) {
  return parent.appendChild(Object.assign(document.createElement(tag), {textContent: text, ...properties}));
}

function addSelect(label, options) {
  const select = add(add(byId("controls"), "label", label + " "), "select");
  for (const [value, text] of options) add(select, "option", text, {value});
  select.addEventListener("change", show);
  return select;
}

// Fills a list with bars {label, length from -1 to 1, value}; those with an `onclick` are buttons.
function fill(id, title, bars, note = "") {
  const list = byId(id);
  list.replaceChildren();
  add(list, "h2", title);
  for (const {label, length, value, onclick, chosen} of bars) {
    const row = add(list, onclick ? "button" : "div", "", {className: chosen ? "row chosen" : "row", onclick});
    add(row, "code", label);
    const bar = add(add(row, "span"), "u", "", {className: length < 0 ? "negative" : ""});
    bar.style.width = 100 * Math.min(1, Math.abs(length)) + "%";
    add(row, "b", value);
  }
  add(list, "p", note);
}

// Colors the tokens by numbers from -1 to 1.
function color(values) {
  for (const [index, span] of spans.entries()) {
    span.style.setProperty("--n", Math.min(1, Math.abs(values[index] ?? 0)).toFixed(3));
    span.style.setProperty("--hue", values[index] < 0 ? "var(--color-low)" : "var(--color-high)");
  }
}

const quoted = index => "“" + visible(data.tokens[index]) + "”";
const highest = values =>
  [...values.keys()].sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, MAX_BARS);

function showNext() {
  const [next, p] = data.next[position] ?? [];
  const bars = data.top[position].map(([token, p], rank) =>
    ({label: visible(token) + (rank === next ? "  ←" : ""), length: p, value: percent(p)}));
  const note = next === undefined ? "This is the last token of the text."
    : `The next token (←) is ${quoted(position + 1)}: rank ${next + 1}, probability ${percent(p)}.`;
  fill("next", "Most likely tokens after " + quoted(position), bars, note);
}

// What each layer would predict, the last one at the top.
function showLens() {
  const bars = Object.entries(data.lens).reverse().map(([name, row]) =>
    ({label: `${visible(row[position][0])} ${name}`, length: row[position][1], value: percent(row[position][1])}));
  fill("lens", "Likeliest token after " + quoted(position) + ", by layer", bars,
    "The model's output layer reads the output of each layer (logit lens).");
}

function attentionView() {
  const blocks = Object.keys(data.attention), numbers = blocks.map(name => data.attention[name].length);
  const heads = [...Array(Math.max(...numbers)).keys()].map(n => [n, n + 1]);
  const block = addSelect("Block", blocks.map(name => [name, name]));
  const head = addSelect("Head", [["", "mean of all"], ...heads]);
  return () => {
    const rows = data.attention[block.value].map(maps => maps[position]);  // [heads][keys]
    for (const [n, option] of [...head.options].entries()) option.hidden = n > rows.length;  // blocks may differ
    if (head.value >= rows.length) head.value = "";
    const mean = rows[0].map((_, index) => rows.reduce((sum, row) => sum + row[index], 0) / rows.length);
    const weights = head.value === "" ? mean : rows[head.value];
    color(weights.map(Math.sqrt));
    const distance = index => index === position ? "itself" : position - index + " back";
    const bars = highest(weights).map(index => ({label: visible(data.tokens[index]) + " " + distance(index),
      length: weights[index], value: percent(weights[index])}));
    fill("details", "Attention weights from " + quoted(position), bars);
  };
}

function activationsView() {
  const layers = Object.keys(data.activations), letters = Object.keys(data.activations[layers[0]]);
  const layer = addSelect("Layer", layers.map(name => [name, name]));
  const signal = addSelect("Signal", letters.map(letter => [letter, data.signals[letter]]));
  const unit = add(add(byId("controls"), "label", "Unit "), "input", "", {type: "number", min: 0});
  const choose = n => { unit.value = n; show(); };
  unit.value = data.mostVariable[layer.value];
  layer.addEventListener("change", () => choose(data.mostVariable[layer.value]));
  unit.addEventListener("input", show);
  return () => {
    const rows = data.activations[layer.value][signal.value], values = rows[position];
    const selected = Math.min(values.length - 1, Math.max(0, Math.round(unit.value) || 0)), order = highest(values);
    const isBounded = "ifogh".includes(signal.value);
    const limit = isBounded ? 1 : Math.max(1e-6, ...rows.map(row => Math.abs(row[selected])));
    const maximum = isBounded ? 1 : Math.abs(values[order[0]]) || 1;
    color(rows.map(row => row[selected] / limit));
    const bars = order.map(n => ({label: "unit " + n, length: values[n] / maximum, value: values[n].toFixed(3),
      onclick: () => { choose(n); byId("details").querySelector(".chosen").focus(); }, chosen: n === selected}));
    fill("details", `Most active units at ${quoted(position)}: ${data.signals[signal.value]}`, bars,
      `The text shows unit ${selected}: ${values[selected].toFixed(3)} at this token; positive orange, negative blue`
      + `${isBounded ? "" : ", full color at " + limit.toFixed(3)}. Select another unit to show it.`);
  };
}

const showDetails = Object.keys(data.attention).length ? attentionView() : activationsView();
function show() { showNext(); showDetails(); if (byId("lens")) showLens(); }
pick(byId("text"), span => { position = spans.indexOf(span); show(); })(spans[position]);
