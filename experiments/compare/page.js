const SVG = "http://www.w3.org/2000/svg", LINE_HEIGHT = 13, hidden = new Set();
const STYLES = {"train loss": "opacity:.4;stroke-width:1.3", "val_loss": "", "val_loss_streaming": "stroke-dasharray:2 3"};
const AXES = {tokens: "tokens", seconds: "seconds of training", flops: "training FLOPs"};
const short = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 3}).format;

function add(parent, name, attributes, text) {
  const node = document.createElementNS(parent.namespaceURI === SVG || name === "svg" ? SVG : parent.namespaceURI, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const values = [];
  for (let n = Math.ceil(low / step); n * step <= high * (1 + 1e-9); n++) values.push(+(n * step).toPrecision(12));
  return values;
}

// Sets the height `at` of labels [{y}]: near y, a line apart, between top and bottom.
function spread(labels, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, n) => { label.at = Math.max(label.y, n ? labels[n - 1].at + LINE_HEIGHT : top); });
  for (let n = labels.length - 1, limit = bottom; n >= 0; limit = labels[n--].at - LINE_HEIGHT)
    labels[n].at = Math.min(labels[n].at, limit);
}

// Draws models [{name, color, curves: {name: [{x, y, low, high}]}}]; the values at the pointer are shown beside it.
function chart(id, models, {label, baselines = [], ceiling, bands, log}) {
  const container = document.getElementById(id), curves = models.flatMap(model => Object.values(model.curves));
  container.replaceChildren();
  if (!models.length) return void (container.textContent = "No model is selected.");
  const points = curves.flat(), scale = log ? Math.log2 : x => x;
  const right = Math.max(...points.map(point => scale(point.x)), 1e-9);
  const low = Math.min(...points.map(point => point.low)) - 0.05;
  const high = Math.max(ceiling ?? Math.max(...points.map(point => point.high)) + 0.05, low + 0.3);
  const visibleBaselines = baselines.filter(line => low < line.loss && line.loss < high);
  const names = [...models, ...visibleBaselines].map(one => one.name);
  const width = container.clientWidth;
  const height = Math.max(260, Math.min(420, width * 0.55), LINE_HEIGHT * names.length + 60);
  const box = {left: 40, right: width - 20 - 6.5 * Math.max(...names.map(name => name.length)), top: 26, bottom: height - 36};
  const X = x => box.left + scale(x) / right * (box.right - box.left);
  const Y = y => box.bottom - (y - low) / (high - low) * (box.bottom - box.top);
  const svg = add(container, "svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `loss over ${label}`});
  add(add(svg, "clipPath", {id: id + "-clip"}), "rect",
    {x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top});
  const levels = ticks(low, high, 6), digits = Math.max(...levels.map(y => (String(y).split(".")[1] ?? "").length));
  for (const y of levels) {
    add(svg, "line", {class: "grid", x1: box.left, x2: box.right, y1: Y(y), y2: Y(y)});
    add(svg, "text", {x: box.left - 6, y: Y(y) + 4, "text-anchor": "end"}, y.toFixed(digits));
  }
  const marks = log ? [...Array(Math.floor(right) + 1).keys()].map(n => 2 ** n) : ticks(0, right, width < 500 ? 3 : 6);
  for (const x of marks) add(svg, "text", {x: X(x), y: box.bottom + 16, "text-anchor": "middle"}, short(x));
  add(svg, "text", {x: box.right, y: height - 4, "text-anchor": "end"}, label);
  add(svg, "text", {x: 0, y: 12}, "loss (nats per character)");

  const plot = add(svg, "g", {"clip-path": `url(#${id}-clip)`});
  for (const {loss} of visibleBaselines) add(plot, "line", {class: "baseline", x1: box.left, x2: box.right, y1: Y(loss), y2: Y(loss)});
  const path = corners => "M" + corners.map(([x, y]) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("L");
  for (const {name, color, curves} of models) for (const curve in curves) {
    const all = curves[curve], edge = [...all.map(p => [p.x, p.high]), ...all.map(p => [p.x, p.low]).reverse()];
    if (bands) add(plot, "path", {class: "band", d: path(edge) + "Z", style: `fill:${color}`});
    add(plot, "path", {class: "curve", d: path(all.map(p => [p.x, p.y])), style: `stroke:${color};${STYLES[curve]}`});
  }
  const labels = [...visibleBaselines.map(line => ({name: line.name, y: Y(line.loss), x: box.right, color: "var(--faint)"})),
    ...models.map(({name, color, curves}) => ({name, color, y: Y(curves.val_loss.at(-1).y), x: X(curves.val_loss.at(-1).x)}))];
  spread(labels, box.top, box.bottom);
  for (const {name, color, x, y, at} of labels) {
    add(svg, "path", {d: `M${x} ${y}L${box.right} ${y}L${box.right + 10} ${at}`, style: `stroke:${color};stroke-width:.7`});
    add(svg, "text", {class: "label", x: box.right + 13, y: at + 4, style: `fill:${color}`}, name);
  }
  hover(svg, container, box, models, curves, label, X);
}

function hover(svg, container, box, models, curves, label, X) {
  const cross = add(svg, "line", {class: "grid", y1: box.top, y2: box.bottom, visibility: "hidden"});
  const tooltip = add(container, "div", {class: "tooltip", hidden: ""});
  const show = event => {
    const at = event.clientX - container.getBoundingClientRect().left, distance = point => Math.abs(X(point.x) - at);
    const nearest = points => points.reduce((a, b) => distance(b) < distance(a) ? b : a);
    const {x} = nearest(curves.flat()), names = Object.keys(models[0].curves);
    cross.setAttribute("x1", X(x)); cross.setAttribute("x2", X(x)); cross.setAttribute("visibility", "visible");
    tooltip.replaceChildren(`${label} ${short(x)}`);
    const table = add(tooltip, "table", {});
    const head = add(table, "tr", {});
    if (names.length > 1) for (const name of ["", ...names]) add(head, "th", {class: "number"}, name);
    for (const model of models) {
      const row = add(table, "tr", {style: `color:${model.color}`});
      add(row, "td", {}, model.name);
      for (const name of names) add(row, "td", {class: "number"}, nearest(model.curves[name]).y.toFixed(3));
    }
    tooltip.hidden = false;
    const beside = at < (box.left + box.right) / 2 ? X(x) + 12 : X(x) - 12 - tooltip.offsetWidth;
    tooltip.style.left = Math.max(0, Math.min(beside, container.clientWidth - tooltip.offsetWidth)) + "px";
  };
  const hide = () => { tooltip.hidden = true; cross.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", event => event.pointerType === "mouse" && hide());
}

function draw() {
  const axis = document.getElementById("axis").value, curves = [], positions = [];
  for (const [n, {name, flopsPerToken, curves: all, positions: losses}] of data.models.entries()) {
    if (hidden.has(n)) continue;
    const color = `var(--c${n % 10})`;
    const xs = {tokens: curve => curve.tokens, seconds: curve => curve.seconds, flops: curve => curve.tokens.map(t => t * flopsPerToken)};
    const points = curve => xs[axis](curve).map((x, k) => ({x, y: curve.mean[k], low: curve.low[k], high: curve.high[k]}));
    curves.push({name, color, curves: Object.fromEntries(Object.entries(all).map(([key, curve]) => [key, points(curve)]))});
    positions.push({name, color, curves: {val_loss: losses.map((y, k) => ({x: k + 1, y, low: y, high: y}))}});
  }
  const ceiling = 0.1 + Math.max(...curves.flatMap(({curves: {val_loss, val_loss_streaming}}) => [val_loss[0].high, val_loss_streaming[0].high]));
  chart("curves", curves, {label: AXES[axis], ceiling, bands: data.num_seeds > 1, baselines: data.baselines});
  chart("positions", positions, {label: "position", log: true});
}

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const model = Number(button.dataset.model), on = hidden.delete(model);
    if (!on) hidden.add(model);
    button.setAttribute("aria-pressed", on);
    draw();
  });
}
document.getElementById("axis").addEventListener("change", draw);
addEventListener("resize", draw);

for (const table of document.querySelectorAll(".sortable")) {
  const headers = [...table.querySelectorAll("th")], body = table.tBodies[0];
  const value = (row, n) => table.rows[0].cells[n].classList.contains("number")
    ? parseFloat(row.cells[n].textContent.replaceAll(",", "")) : row.cells[n].textContent;
  headers.forEach((header, n) => header.addEventListener("click", () => {
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    headers.forEach(other => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
    body.append(...[...body.rows].sort((a, b) => value(a, n) < value(b, n) ? -sign : sign));
  }));
}
draw();
