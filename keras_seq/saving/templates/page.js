// The user interface of a page in which models live; `KerasSeq`, the engine, is loaded before it.
const MAX_LENGTH = 20000, MAX_WRITTEN = 1000, SLICE = 12, LOOK_EVERY = 100;  // the latter two in milliseconds
const CHANGED = 0.05, FULL_DIFFERENCE = 4, LIKELIEST = 5, WIDEST = 96;
const byId = id => document.getElementById(id);
const isolate = text => "\u2068" + text + "\u2069";  // so that right-to-left text leaves the sentence around it alone
const count = number => number.toLocaleString("en");
const fixed = (number, digits) => (Number(number.toFixed(digits)) || 0).toFixed(digits).replace("-", "−");
const signed = (number, digits) => (number < 0 ? "" : "+") + fixed(number, digits);
const percent = p => (p >= 0.01 ? (100 * p).toFixed(0) : p >= 1e-6 ? Number((100 * p).toPrecision(1)) : "< 0.0001")
  + " %";
const sorted = values => [...values.keys()].sort((a, b) => values[b] - values[a]);
const mean = values => values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN;

// All that the page knows: the text by code points, the places of the bars, a column for each model, the caret.
let characters = [], forgets = [], columns = [], caret = 0, hover = null;
let baseline = null;  // the text and losses before the last edit; closed where the next edit is another one
let writing = null, fullLoss = 1, lookAt = 0, isScheduled = false, speakLater = 0, mouse = "";
const here = () => Math.min(hover ?? caret, characters.length);

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// A character as it is shown in a sentence or a list: one that nobody could see gets a sign or its number.
function visible(character) {
  const sign = {" ": "·", "\n": "⏎", "\t": "⇥"}[character];
  if (sign) return sign;
  if (/^\p{M}/u.test(character)) return "◌" + character;
  return /^[\p{C}\p{Z}]$/u.test(character)
    ? "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") : character;
}
const quoted = character => "“" + isolate(visible(character)) + "”";

const say = sentence => { byId("said").textContent = sentence; };

// The text: a span for each character in each column, and the textareas over them.
const spanAt = (column, t) => column.spans[t] ?? column.end;

function replaceSpans(column, start, oldEnd, newEnd) {
  const made = characters.slice(start, newEnd).map(textContent => element("span", {textContent}));
  for (const [n, span] of made.entries()) {
    span.classList.toggle("newline", span.textContent === "\n");
    span.classList.toggle("unknown", column.ids[start + n] < 0);
  }
  placeSpans(made, column.spans.slice(start, oldEnd), spanAt(column, start).parentElement, spanAt(column, oldEnd));
  column.spans = column.spans.slice(0, start).concat(made, column.spans.slice(oldEnd));
  column.losses = column.losses.slice(0, start).concat(made.map(() => NaN), column.losses.slice(oldEnd));
}

// Each line of the mirror is an element, so that an edit lays out one line, not the text: takes the old spans away,
// joins the lines up to the one with the span that follows them, and puts the new spans before that one.
function placeSpans(made, old, line, next) {
  for (const span of old) span.remove();
  while (next.parentElement !== line) {
    line.append(...line.nextElementSibling.childNodes);
    line.nextElementSibling.remove();
  }
  let last = line;
  for (const span of made) {
    last.insertBefore(span, last === line ? next : null);
    if (!span.classList.contains("newline")) continue;
    last.after(element("div"));
    last = last.nextElementSibling;
  }
  if (last === line) return;
  const rest = [...line.childNodes];
  last.append(...rest.slice(rest.indexOf(next)));
}

// What differs between two lists of characters: old[start, oldEnd) became now[start, newEnd). Of equal characters those
// before the caret are the new ones.
function difference(old, now, caret = now.length) {
  let start = 0, oldEnd = old.length, newEnd = now.length;
  while (oldEnd > 0 && newEnd > caret && old[oldEnd - 1] === now[newEnd - 1]) { oldEnd--; newEnd--; }
  while (start < oldEnd && start < newEnd && old[start] === now[start]) start++;
  while (oldEnd > start && newEnd > start && old[oldEnd - 1] === now[newEnd - 1]) { oldEnd--; newEnd--; }
  return {start, oldEnd, newEnd};
}

// Keeps the text and losses that an edit is compared with: an edit goes on until the caret moves without it.
function keepBaseline() {
  if (baseline && !baseline.isClosed) return;
  const isWhole = columns.every(column => column.isRead);  // else there is nothing to compare with
  baseline = {characters, isWhole, losses: columns.map(column => column.losses.slice())};
}

// Makes this the text of the page; the models read it again from the first change on.
function change(now, t) {
  const {start, oldEnd, newEnd} = difference(characters, now, t);
  if (start === oldEnd && start === newEnd) return;
  keepBaseline();
  forgets = forgets.filter(f => f <= start || f >= oldEnd).map(f => f <= start ? f : f + newEnd - oldEnd);
  forgets = [...new Set(forgets)].filter(f => f > 0);  // at the start there is nothing to forget
  characters = now;
  Object.assign(baseline, difference(baseline.characters, now));
  for (const column of columns) {
    column.ids = column.model.encode(now.join(""));
    replaceSpans(column, start, oldEnd, newEnd);
  }
  read();
}

function read() {
  for (const column of columns) {
    column.reader.setText(column.ids, forgets);
    column.isLooking = false;
    column.read = Math.min(column.read, column.reader.done);
    column.isRead = false;
    for (const span of column.marks) span.classList.remove("up", "down");
    column.marks = [];
    column.changedBits = 0;
    showUnknown(column);
  }
  showForgets();
  look();
}

function showUnknown(column) {
  const unknown = [...new Set(characters.filter((_, t) => column.ids[t] < 0))];
  const names = unknown.slice(0, 5).map(quoted).join(", ") + (unknown.length > 5 ? " and more" : "");
  column.part("skipped").textContent = unknown.length ? `This model does not know these characters and skips them: ${names}.` : "";
}

function showForgets() {
  for (const column of columns) {
    for (const span of column.bars) span.classList.remove("forget");
    column.bars = forgets.map(t => spanAt(column, t));
    for (const span of column.bars) span.classList.add("forget");
  }
  byId("forget").textContent = forgets.includes(caret) ? "Remove this bar" : "Forget here";
  byId("remember").hidden = !forgets.length;
}

function setForgets(now, from) {
  baseline.isClosed = true;
  keepBaseline();
  Object.assign(baseline, {oldEnd: from, newEnd: from, isClosed: true});
  forgets = now;
  read();
}

// Takes a text from a textarea or elsewhere: cuts what is too long, and gives it to the textareas that have another.
function setText(now, t) {
  say(now.length > MAX_LENGTH ? `The text was cut after ${count(MAX_LENGTH)} characters.` : "");
  const value = now.slice(0, MAX_LENGTH).join("");
  for (const {textarea} of columns) if (textarea.value !== value) textarea.value = value;
  change([...columns[0].textarea.value], t);
}

// Moves the caret, in code points.
function moveCaret(t) {
  caret = t;
  showForgets();
  look();
  for (const column of columns) reveal(column, caret);
}

// Puts the caret of a textarea, if it is one, where the page has it: in code units.
function placeCaret(target, t) {
  const units = characters.slice(0, t).join("").length;
  if (target.matches("textarea") && target.selectionStart !== units) target.setSelectionRange(units, units);
}

function setCaret(t) {
  placeCaret(document.activeElement, t);
  baseline.isClosed = true;
  moveCaret(t);
}

// Where the caret of the textarea is; nothing if it has a new text, of which the page hears next.
function followCaret() {
  const textarea = document.activeElement;
  if (!textarea?.matches("textarea") || textarea.value !== characters.join("")) return;
  const t = [...textarea.value.slice(0, textarea.selectionStart)].length;
  if (t === caret) return;
  baseline.isClosed = true;
  hover = null;
  moveCaret(t);
}

// Scrolls the text of a column, not the page, so that a character can be seen.
function reveal(column, t) {
  const {text} = column, box = spanAt(column, t).getBoundingClientRect(), around = text.getBoundingClientRect();
  if (box.top < around.top) text.scrollTop += box.top - around.top - 16;
  if (box.bottom > around.bottom) text.scrollTop += box.bottom - around.bottom + 16;
}

// Marks the character that the page is about, and shows the rest about it when there is time for it.
function look() {
  for (const column of columns) {
    column.marked?.classList.remove("marked");
    column.marked = spanAt(column, here());
    column.marked.classList.add("marked");
    column.isStale = true;
  }
  for (const end of ["x1", "x2"]) byId("cursor").setAttribute(end, 1000 * here() / Math.max(1, characters.length));
  schedule();
}

// The clock: in each frame the models read a little, what is new is shown, and a model may write a character.
function schedule() {
  if (!isScheduled) requestAnimationFrame(tick);
  isScheduled = true;
}

function tick(now) {
  isScheduled = false;
  const unread = columns.filter(column => !column.isRead);
  for (const column of unread) {
    column.isRead = column.reader.advance(SLICE / unread.length);
    take(column);
  }
  if (unread.length) showNumbers();
  const isRead = columns.every(column => column.isRead);
  if (writing && isRead && now >= writing.at) write(now);
  if (now >= lookAt) {
    const needed = Math.min(here() + 1, characters.length);
    const ready = columns.filter(column => column.isStale && column.read >= needed);
    for (const column of ready) inspect(column);
    if (ready.length) lookAt = now + LOOK_EVERY;
  }
  for (const column of columns) if (column.isLooking) lookOn(column);
  if (writing || columns.some(column => !column.isRead || column.isStale || column.isLooking)) schedule();
}

// Takes the losses that are new, colors their characters, and marks those that an edit has changed.
function take(column) {
  const {reader, losses, read: from} = column, to = reader.done, k = columns.indexOf(column);
  for (let t = from; t < to; t++) losses[t] = reader.losses[t];
  column.read = to;
  for (const one of columns) paint(one, from, to);
  for (let t = Math.max(from, baseline.newEnd); baseline.isWhole && t < to; t++) {
    const change = losses[t] - baseline.losses[k][t - baseline.newEnd + baseline.oldEnd];
    if (!(Math.abs(change) > CHANGED)) continue;
    column.spans[t].classList.add(change > 0 ? "up" : "down");
    column.marks.push(column.spans[t]);
    column.changedBits += change;
  }
}

function paint(column, from, to) {
  const other = byId("color").value === "difference" ? columns.find(one => one !== column) : null;
  const full = other ? FULL_DIFFERENCE : fullLoss;
  for (let t = from; t < to; t++) {
    const bits = column.losses[t] - (other ? other.losses[t] : 0), span = column.spans[t];
    const shade = Math.round(50 * Math.max(-1, Math.min(1, bits / full))) / 50 || 0;
    if (span.shade === shade) continue;
    span.shade = shade;
    span.style.setProperty("--n", Math.abs(shade));
    span.classList.toggle("cool", shade < 0);
  }
}

// The sentences with numbers: of each column, of the difference between two, and how far the models have read.
function showNumbers() {
  for (const column of columns) {
    const bits = mean(column.losses.slice(0, column.read).filter(Number.isFinite));
    column.part("mean").textContent = Number.isNaN(bits) ? "" : bits.toFixed(2) + " bits per character";
    column.part("changes").textContent = changes(column);
  }
  const read = Math.min(...columns.map(column => column.read)), isSlow = characters.length - read > 200;
  byId("progress").textContent = isSlow ? `Reading ${count(read)} of ${count(characters.length)} characters` : "";
  if (columns.length === 2) showBalance(read);
}

function changes({marks, changedBits, isRead}) {
  const later = characters.length - baseline.newEnd;
  if (!later || !baseline.isWhole) return "";
  if (!marks.length) return isRead ? "No later character is read differently." : "";
  return `${count(marks.length)} of ${count(later)} later character${later === 1 ? "" : "s"} `
    + `${marks.length === 1 ? "is" : "are"} read differently, ${signed(changedBits, 1)} bits.`;
}

// Which of two models is ahead, and the sum of the differences along the text: it rises where the first reads better.
function showBalance(read) {
  const [a, b] = columns, sums = [0];
  let compared = 0, scored = 0;
  for (let t = 0; t < read; t++) {
    const gain = b.losses[t] - a.losses[t];
    if (Number.isFinite(gain)) compared++;
    if (Number.isFinite(a.losses[t]) || Number.isFinite(b.losses[t])) scored++;
    sums.push(sums[t] + (Number.isFinite(gain) ? gain : 0));
  }
  const ahead = sums[read] / compared, better = ahead > 0 ? a : b;
  byId("verdict").textContent = !compared ? "Nothing to compare yet."
    : Math.abs(ahead) < 0.005 ? "Both models read this text equally well."
    : `${better.title} is ${Math.abs(ahead).toFixed(2)} bits per character ahead`
      + (compared < scored ? `, on the ${count(compared)} characters that both know.` : ".");
  const high = Math.max(1, ...sums), low = Math.min(-1, ...sums), step = Math.max(1, Math.ceil(read / 800));
  const X = t => (1000 * t / Math.max(1, characters.length)).toFixed(1);
  const Y = sum => (3 + 94 * (high - sum) / (high - low)).toFixed(1);
  const corners = sums.map((sum, t) => X(t) + " " + Y(sum)).filter((_, t) => t % step === 0 || t === read);
  byId("curve").setAttribute("d", "M" + corners.join("L"));
  for (const end of ["y1", "y2"]) byId("even").setAttribute(end, Y(0));
  byId("chart").setAttribute("aria-label", `Sum of the differences along the text: ${signed(sums[read], 1)} bits at `
    + `the end, at most ${signed(Math.max(...sums), 1)}, at least ${signed(Math.min(...sums), 1)}; above 0 ${a.title} `
    + "is ahead.");
}

// What a model expected at the character that the page is about: five bars, and its pictures.
function inspect(column) {
  const t = here(), {model, reader, ids, items} = column, probabilities = reader.probabilities(t);
  column.isStale = false;
  const order = probabilities ? sorted(probabilities).slice(0, LIKELIEST) : [];
  column.part("expected").textContent = expectation(column, t, probabilities);
  for (const [n, item] of items.entries()) {
    const id = order[n];
    item.hidden = id === undefined;
    if (item.hidden) continue;
    item.classList.toggle("came", id === ids[t]);
    item.character = model.characters[id];
    item.querySelector("code").textContent = visible(item.character);
    item.querySelector("u").style.width = 100 * probabilities[id] + "%";
    item.querySelector("i").textContent = percent(probabilities[id]);
  }
  column.lookedAt = lastRead(column, t);
  column.isLooking = true;
  if (hover === null && !writing) speak();
}

// Shows what a model saw as soon as it has read up to there again.
function lookOn(column) {
  const {reader, lookedAt} = column, views = lookedAt < 0 ? [] : reader.look(lookedAt, SLICE);
  column.isLooking = views === null;
  if (views) showViews(column, views, lookedAt);
}

function expectation({ids, losses}, t, probabilities) {
  const name = t < characters.length ? quoted(characters[t]) : "The next character";
  if (!probabilities) return `${name}: nothing comes before it, so the model cannot predict it.`;
  if (t === characters.length) return `${name}: the likeliest are these.`;
  if (ids[t] < 0) return `${name}: this model does not know it. The likeliest here were these.`;
  const p = probabilities[ids[t]], rank = 1 + probabilities.filter(other => other > p).length;
  const place = rank === 1 ? "the likeliest" : "rank " + count(rank);
  return `${name}: ${losses[t].toFixed(2)} bits, ${percent(p)}, ${place}.`;
}

// The last position before t of which the model knows something at t; -1 if there is none.
function lastRead({ids}, t) {
  for (let s = t - 1; s >= 0 && !forgets.includes(s + 1); s--) if (ids[s] >= 0) return s;
  return -1;
}

// Says to those who listen what a caret that rests is at.
function speak() {
  clearTimeout(speakLater);
  speakLater = setTimeout(() => {
    byId("spoken").textContent = columns.map(({title, part}) => `${title}: ${part("expected").textContent}`).join(" ");
  }, 400);
}

// The pictures: the views of a position, one of which is chosen.
const names = {
  gates: ({layer}) => "gates of " + layer,
  attention: ({layer}) => "attention of " + layer,
  state: ({name, layer}) => `${name} of ${layer}`,
  lens: () => "prediction by layer",
};
const pictures = {gates: showGates, attention: showAttention, state: showState, lens: showLens};

function showViews(column, views, t) {
  const select = column.part("views"), known = views.filter(view => view.kind in names);
  const labels = known.map(view => names[view.kind](view));
  for (const span of column.looked) span.style.removeProperty("--look");
  column.looked = [];
  if (!known.length) {
    column.part("view").replaceChildren(element("p", {textContent: "Nothing comes before this character, so there is no view."}));
    return;
  }
  if (labels.join("\n") !== column.labels) {
    column.labels = labels.join("\n");
    select.replaceChildren(...labels.map(textContent => element("option", {textContent})));
    select.selectedIndex = Math.max(0, labels.indexOf(column.chosen));
    select.parentElement.hidden = labels.length < 2;
  }
  const view = known[select.selectedIndex];
  column.part("picture").setAttribute("aria-label", `${column.title}: ${labels[select.selectedIndex]}`);
  const part = column.part("view"), chosen = [...part.querySelectorAll("button")].indexOf(document.activeElement);
  part.replaceChildren(...pictures[view.kind](view, column, t));
  part.querySelectorAll("button")[chosen]?.focus({preventScroll: true});  // a keyboard goes on from there
}

// A canvas of one pixel for each number from -1 to 1, which CSS enlarges.
function heatMap(values, width, label) {
  const style = getComputedStyle(document.documentElement), height = Math.ceil(values.length / width);
  const rgb = name => style.getPropertyValue(name).trim().match(/[\da-f]{2}/gi).map(hex => parseInt(hex, 16));
  const hues = [rgb("--color-high"), rgb("--color-low")];
  const canvas = element("canvas", {width: Math.max(1, width), height: Math.max(1, height)});
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  for (let n = 0; n < values.length; n++) {
    image.data.set(hues[values[n] < 0 ? 1 : 0], 4 * n);
    image.data[4 * n + 3] = 255 * Math.min(1, Math.abs(values[n]));
  }
  context.putImageData(image, 0, 0);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return canvas;
}

// A heat map with its name, its range, and the number under the mouse.
function strip(name, values, width, {scale, cell, unit}) {
  const least = values.reduce((a, b) => Math.min(a, b)), most = values.reduce((a, b) => Math.max(a, b));
  const range = `${fixed(least, 2)} to ${fixed(most, 2)}`;
  const canvas = heatMap(values.map(value => value / scale), width, `${name}: ${range}`);
  const reading = element("span", {textContent: range}), rows = canvas.height;
  canvas.style.height = Math.round(rows * cell) + "px";
  canvas.addEventListener("pointermove", event => {
    const x = Math.floor(event.offsetX / canvas.clientWidth * width);
    const n = Math.floor(event.offsetY / canvas.clientHeight * rows) * width + x;
    reading.textContent = n in values ? `${unit(n)}: ${fixed(values[n], 3)}` : range;
  });
  canvas.addEventListener("pointerleave", () => { reading.textContent = range; });
  return element("div", {className: "strip"}, element("span", {}, name, reading), canvas);
}

// Numbers in a row, folded so that a cell is wide enough to see, in equal rows where that is possible.
function units(name, values, scale) {
  const fewest = Math.max(1, Math.ceil(values.length / WIDEST)), choices = [...Array(fewest).keys()];
  const rows = choices.map(n => fewest + n).find(rows => values.length % rows === 0) ?? fewest;
  const cell = rows === 1 ? 16 : 8, unit = n => `unit ${n}`;
  return strip(name, values, Math.ceil(values.length / rows), {...scale, cell, unit});
}

const after = t => `After ${quoted(characters[t])}`;

function showGates({signals}, column, t) {
  const text = element("p", {textContent: `${after(t)}, one cell for each unit:`});
  const strip = ({name, values, high}) => units(name, values, {scale: high});
  return [text, ...signals.map(strip)];
}

function showState(view, column, t) {
  const {rows, columns: width, values} = view, name = names.state(view);
  const scale = Math.max(1e-9, values.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
  const text = element("p", {textContent: `${after(t)}; the full color is ${scale.toPrecision(2)}:`});
  if (rows === 1 || width === 1) return [text, units(name, values, {scale})];
  const isTall = rows > width, across = isTall ? rows : width, down = isTall ? width : rows;
  const at = n => isTall ? n % across * width + Math.floor(n / across) : n;
  const shown = isTall ? values.map((_, n) => values[at(n)]) : values;
  const unit = n => `row ${Math.floor(at(n) / width)}, column ${at(n) % width}`;
  return [text, strip(name, shown, across, {scale, cell: Math.max(2, Math.min(10, 280 / down)), unit})];
}

// Heads of attention: a strip for each; the chosen one, or the mean of all, is also drawn under the text.
function showAttention({heads, positions}, column, t) {
  const all = heads[0].map((_, n) => mean(heads.map(weights => weights[n])));
  const options = [["All", all], ...heads.map((weights, n) => [`Head ${n + 1}`, weights])];
  const head = Math.min(column.head, heads.length), weights = options[head][1];
  underline(column, positions, weights);
  const width = Math.max(positions.length, Math.min(column.model.contextLength ?? 0, 256));
  const rows = options.map(([name, values], n) => {
    const onclick = () => { column.head = n; look(); };
    const button = element("button", {type: "button", textContent: name, onclick});
    button.setAttribute("aria-pressed", n === head);
    const shades = [...new Float32Array(width - values.length), ...values.map(Math.sqrt)];
    const canvas = heatMap(shades, width, `${name}, weights of the last ${count(positions.length)} characters`);
    canvas.style.height = "18px";
    return element("div", {className: "head"}, button, canvas);
  });
  const far = position => position === t ? "itself" : `${count(t - position)} back`;
  const list = sorted(weights).slice(0, 3)
    .map(n => `${quoted(characters[positions[n]])} (${far(positions[n])}, ${percent(weights[n])})`).join(", ");
  const who = head ? `head ${head}` : "all heads";
  return [element("p", {textContent: `From ${quoted(characters[t])}, ${who} looked most at ${list}.`}), ...rows];
}

function underline(column, positions, weights) {
  const most = Math.max(...weights);
  for (const [n, position] of positions.entries()) {
    const look = Math.sqrt(weights[n] / most);
    if (!(look > 0.1)) continue;
    const span = spanAt(column, position);
    span.style.setProperty("--look", look.toFixed(2));
    column.looked.push(span);
  }
}

function showLens({layers}, column, t) {
  const table = element("table");
  for (const {layer, probabilities} of layers) {
    const row = element("tr", {}, element("th", {scope: "row", textContent: layer}));
    for (const id of sorted(probabilities).slice(0, LIKELIEST)) {
      const code = element("code", {textContent: visible(column.model.characters[id])});
      if (id === column.ids[here()]) code.className = "came-here";
      const cell = element("td", {}, code, percent(probabilities[id]));
      cell.style.setProperty("--n", probabilities[id].toFixed(2));
      row.append(cell);
    }
    table.append(row);
  }
  return [element("p", {textContent: `${after(t)}, each layer expects:`}), table];
}

// Writing: the next character by one model's probabilities, until something stops it.
function setWriting(writer) {
  writing = writer && {column: writer, writer: null, at: 0, written: 0};
  for (const {part, title} of columns) {
    const isWriting = part === writer?.part;
    part("write").textContent = isWriting ? "Stop" : "Write on";
    part("write").setAttribute("aria-label", isWriting ? `Stop ${title}` : `Write on with ${title}`);
  }
  if (writer) setCaret(characters.length);
  look();
}

function write(now) {
  const {column: {reader, model}} = writing;
  const isFull = writing.written === MAX_WRITTEN || characters.length === MAX_LENGTH;
  const isEmpty = !reader.probabilities(characters.length);
  if (isEmpty) say("The model needs a character to begin with: write one first.");
  if (isFull) say(`It wrote ${count(writing.written)} characters and stopped.`);
  if (isFull || isEmpty) return setWriting(null);
  const [temperature, topP, seed] = ["temperature", "top-p", "seed"].map(id => Number(byId(id).value));
  writing.writer ??= new KerasSeq.Writer(reader, {temperature, topP, seed: Math.min(Math.abs(Math.trunc(seed)), Number.MAX_SAFE_INTEGER)});
  const character = model.characters[writing.writer.next()];
  writing.written++;
  writing.at = now + Number(byId("speed").value);
  setText([...characters, ...character]);
  setCaret(characters.length);
}

// Puts one of the likeliest characters in the place of the one at the caret, or at the end.
function put(character) {
  const isAtEnd = caret === characters.length;
  setWriting(null);
  baseline.isClosed = true;
  setText(characters.toSpliced(caret, 1, ...character));
  setCaret(isAtEnd ? characters.length : caret);
}

// The parts of a column, and what happens in them.
function makeColumn(model, title) {
  const article = byId("column").content.cloneNode(true).firstElementChild;
  const part = name => article.querySelector("." + name), textarea = article.querySelector("textarea");
  const column = {model, title, part, textarea, reader: new KerasSeq.Reader(model), ids: new Int32Array(0), read: 0,
    text: part("text"), mirror: article.querySelector("pre"), end: part("end"), spans: [], losses: [], marks: [],
    bars: [], looked: [], head: 0, changedBits: 0};
  article.querySelector("h2").textContent = title;
  article.setAttribute("aria-label", title);
  textarea.setAttribute("aria-label", `Text that ${title} reads`);
  column.items = Array.from({length: LIKELIEST}, () => {
    const item = element("li", {hidden: true});
    item.append(element("button", {type: "button", onclick: () => put(item.character)},
      element("code"), element("i"), element("span", {}, element("u"))));
    return item;
  });
  article.querySelector("ol").append(...column.items);
  byId("columns").append(article);
  listen(column);
  return column;
}

function listen(column) {
  const {textarea, text, part} = column;
  textarea.addEventListener("input", () => {
    if (textarea.value === characters.join("")) return;
    const t = [...textarea.value.slice(0, textarea.selectionStart)].length;
    if (writing) setWriting(null);
    hover = null;
    const {value} = textarea;
    setText([...value], t);
    moveCaret(Math.min(t, characters.length));
    if (textarea.value !== value) placeCaret(textarea, caret);  // it was cut
  });
  textarea.addEventListener("scroll", () => { textarea.scrollTop = 0; });
  textarea.addEventListener("pointermove", event => {
    const {pointerType, clientX, clientY} = event, place = clientX + " " + clientY;
    if (pointerType === "touch" || place === mouse) return;  // the text may move under a mouse that rests
    mouse = place;
    const under = document.elementsFromPoint(clientX, clientY).find(node => column.mirror.contains(node));
    const t = column.spans.indexOf(under), found = t < 0 ? null : t;
    if (found === hover) return;
    hover = found;
    look();
  });
  textarea.addEventListener("pointerleave", () => { if (hover !== null) { hover = null; look(); } });
  text.addEventListener("scroll", () => { for (const other of columns) other.text.scrollTop = text.scrollTop; });
  part("write").addEventListener("click", () => {
    say("");
    setWriting(writing?.column === column ? null : column);
  });
  part("views").addEventListener("change", event => { column.chosen = event.target.value; look(); });
}

// What happens outside the columns: buttons, settings, the chart.
function listenToPage() {
  for (const event of ["selectionchange", "keyup"]) document.addEventListener(event, followCaret);
  document.addEventListener("focusin", ({target}) => placeCaret(target, caret));  // which a click moves next
  document.addEventListener("keydown", event => { if (event.key === "Escape" && writing) setWriting(null); });
  byId("color").addEventListener("change", () => { for (const one of columns) paint(one, 0, one.read); });
  byId("forget").addEventListener("click", () => {
    if (!caret) return say("The models begin with nothing anyway: move the caret first.");
    const isBar = forgets.includes(caret);
    setForgets(isBar ? forgets.filter(t => t !== caret) : [...forgets, caret].sort((a, b) => a - b), caret);
  });
  byId("remember").addEventListener("click", () => setForgets([], forgets[0]));
  const show = event => {
    for (const id of ["temperature", "top-p"]) byId(id).nextElementSibling.value = Number(byId(id).value).toFixed(2);
    if (writing && event?.target.id !== "speed") writing.writer = null;
  };
  byId("settings").addEventListener("input", show);
  show();
  const chart = byId("chart");
  const at = ({clientX}) => {
    const {left, width} = chart.getBoundingClientRect();
    return Math.max(0, Math.min(characters.length, Math.floor((clientX - left) / width * characters.length)));
  };
  chart.addEventListener("pointermove", event => {
    hover = at(event);
    look();
    for (const one of columns) reveal(one, here());
  });
  chart.addEventListener("pointerleave", () => { hover = null; look(); });
  chart.addEventListener("click", event => setCaret(at(event)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", look);
}

// Reads the page's data and models, and starts.
function start() {
  let data = {};
  try { data = JSON.parse(byId("page-data").textContent) ?? {}; } catch { /* The models say what is missing. */ }
  byId("title").textContent = typeof data.title === "string" ? data.title : document.title;
  let models;
  try {
    models = KerasSeq.load(document);
    if (!models.length) throw new Error("This page has no model in it: the file is not whole.");
  } catch (error) {
    return showProblem(error.message);
  }
  models = models.slice(0, 2);
  document.body.className = models.length === 2 ? "two" : "one";
  for (const id of ["balance", "color-choice"]) byId(id).hidden = models.length < 2;
  byId("problem").hidden = true;
  byId("main").hidden = false;
  const isTwin = models.length === 2 && models[0].title === models[1].title;
  columns = models.map((model, n) => makeColumn(model, isolate(model.title) + (isTwin ? ` ${n + 1}` : "")));
  fullLoss = Math.max(...models.map(model => Math.log2(model.characters.length)));
  for (const [n, {title, model}] of columns.entries()) {
    const most = model.contextLength, least = Math.ceil(most / 2);
    const sees = most ? `sees the last ${count(least)} to ${count(most)} characters` : "";
    const description = model.description ? isolate(model.description.replace(/\.$/, "")) : "";
    const facts = [description, sees].filter(Boolean).join(", ");
    byId("story").append(n ? " " : "", element("b", {textContent: title}), facts ? `: ${facts}.` : ".");
  }
  if (columns.length === 2) {
    const [a, b] = columns.map(({title}) => title);
    byId("reading").textContent = `The line rises where ${a} reads the text better, and falls where ${b} does.`;
  }
  listenToPage();
  keepBaseline();
  setWriting(null);
  read();
  setText([...typeof data.text === "string" ? data.text.replaceAll("\r", "␍") : ""]);
  setCaret(characters.length);
}

// In the place of the models, a sentence that says what is wrong.
function showProblem(sentence) {
  byId("problem").textContent = sentence;
  byId("problem").className = "said";
  byId("problem").hidden = false;
  byId("main").hidden = true;
}

addEventListener("error", ({error, message}) => showProblem("The page cannot show its models: " + (error?.message ?? message)));
start();
