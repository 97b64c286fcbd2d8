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
