const SVG = "http://www.w3.org/2000/svg", LINE_HEIGHT = 13, hidden = new Set();
const STYLES = {"train loss": "opacity:.4;stroke-width:1.3", val_loss_streaming: "stroke-dasharray:2 3"};
const AXES = {tokens: "tokens", seconds: "seconds of training", flops: "training FLOPs"};
const short = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 3}).format;

function add(parent, tag, attributes = {}, text = "") {
  const node = document.createElementNS(tag === "svg" ? SVG : parent.namespaceURI, tag);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.textContent = text;
  return parent.appendChild(node);
}

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough), first = Math.ceil(low / step);
  return [...Array(Math.floor(high / step + 1e-9) - first + 1).keys()].map(n => +((first + n) * step).toPrecision(12));
}

// Sets the height `at` of labels [{y}]: near y, a line apart, between top and bottom.
function spread(labels, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((label, n) => { label.at = Math.max(label.y, n ? labels[n - 1].at + LINE_HEIGHT : top); });
  for (let n = labels.length - 1, limit = bottom; n >= 0; limit = labels[n--].at - LINE_HEIGHT)
    labels[n].at = Math.min(labels[n].at, limit);
}

// Draws models [{name, color, curves: {val_loss: [{x, y, low, high}], ...}}], with their names at the end of val_loss.
function chart(id, models, {label, baselines = [], ceiling, bands, log, margin = 0.05}) {
  const container = document.getElementById(id), 
    points = models.flatMap(({curves, dots = []}) => [...Object.values(curves).flat(), ...dots]);
  container.replaceChildren(models.length ? "" : "No model is selected.");
  if (!models.length) return;
  const scale = log ? Math.log2 : x => x, left = log ? Math.min(...points.map(point => scale(point.x))) : 0;
  const right = Math.max(...points.map(point => scale(point.x)), left + 1e-9);
  const low = Math.min(...points.map(point => point.low)) - margin;
  const high = Math.max(ceiling ?? Math.max(...points.map(point => point.high)) + margin, low + 6 * margin);
  const lines = baselines.filter(line => low < line.loss && line.loss < high);
  const names = [...models, ...lines].map(one => one.name), width = container.clientWidth;
  const height = Math.max(260, Math.min(420, width * 0.55), LINE_HEIGHT * names.length + 60);
  const gutter = Math.min(20 + 6.5 * Math.max(...names.map(name => name.length)), 0.45 * width);
  const room = Math.floor((gutter - 20) / 6.5);  // characters of a name
  const half = room >> 1, fitted = name => name.length <= room ? name
    : name.slice(0, half) + "…" + name.slice(half - room + 1);
  const box = {left: 40, right: width - gutter, top: 26, bottom: height - 36};
  const X = x => box.left + (scale(x) - left) / (right - left) * (box.right - box.left);
  const Y = y => box.bottom - (y - low) / (high - low) * (box.bottom - box.top);
  const svg = add(container, "svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Loss in nats per character, over " + label});
  const horizontal = (y, name) => add(svg, "line", {class: name, x1: box.left, x2: box.right, y1: Y(y), y2: Y(y)});

  const levels = ticks(low, high, 6), digits = Math.max(...levels.map(y => (String(y).split(".")[1] ?? "").length));
  for (const y of levels) {
    horizontal(y, "grid");
    add(svg, "text", {x: box.left - 6, y: Y(y) + 4, "text-anchor": "end"}, y.toFixed(digits));
  }
  const every = Math.ceil((right - left + 1) * 45 / (box.right - box.left));  // a label has 45 pixels
  const powers = [...Array(Math.floor((right - left) / every + 1e-6) + 1).keys()].map(n => 2 ** (left + n * every));
  const marks = log ? powers : ticks(0, right, width < 500 ? 3 : 6);
  for (const x of marks) add(svg, "text", {x: X(x), y: box.bottom + 16, "text-anchor": "middle"}, short(x));
  add(svg, "text", {x: box.right, y: height - 4, "text-anchor": "end"}, label);
  add(svg, "text", {x: 0, y: 12}, "loss (nats per character)");

  for (const {loss} of lines) horizontal(loss, "baseline");
  add(add(svg, "clipPath", {id: id + "-clip"}), "rect",
    {x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top});
  const plot = add(svg, "g", {"clip-path": `url(#${id}-clip)`});
  const path = corners => "M" + corners.map(([x, y]) => `${X(x).toFixed(1)} ${Y(y).toFixed(1)}`).join("L");
  for (const {color, curves} of models) for (const [name, curve] of Object.entries(curves)) {
    const edge = [...curve.map(p => [p.x, p.high]), ...curve.map(p => [p.x, p.low]).reverse()];
    if (bands) add(plot, "path", {class: "band", d: path(edge) + "Z", style: "fill:" + color});
    const style = `stroke:${color};${STYLES[name] ?? ""}`;
    add(plot, "path", {class: "curve", d: path(curve.map(p => [p.x, p.y])), style});
    if (curve.length === 1 && name === "val_loss")
      add(svg, "circle", {cx: X(curve[0].x), cy: Y(curve[0].y), r: 3.5, style: "fill:" + color});
  }
  for (const {color, dots = []} of models)
    for (const {x, y} of dots) add(plot, "circle", {cx: X(x), cy: Y(y), r: 3.5, style: "fill:" + color});
  const ends = models.map(({name, color, ink, curves}) => ({name, color, ink, ...curves.val_loss.at(-1)}));
  const labels = [...ends, ...lines.map(({name, loss}) => ({name, color: "var(--faint)", y: loss}))];
  for (const one of labels) one.y = Math.max(box.top, Math.min(box.bottom, Y(one.y)));
  spread(labels, box.top, box.bottom);
  for (const {name, color, ink, x, y, at} of labels) {
    const leader = `M${x === undefined ? box.right : X(x)} ${y}H${box.right}L${box.right + 10} ${at}`;
    add(svg, "path", {d: leader, style: `stroke:${color};stroke-width:.7`});
    add(svg, "text", {class: "label", x: box.right + 13, y: at + 4, style: "fill:" + (ink ?? color)}, fitted(name));
  }

  const cross = add(svg, "line", {class: "grid", y1: box.top, y2: box.bottom, visibility: "hidden"});
  const tooltip = add(container, "div", {class: "tooltip", hidden: ""});
  const show = event => {
    const at = event.clientX - container.getBoundingClientRect().left, distance = point => Math.abs(X(point.x) - at);
    const nearest = points => points.reduce((a, b) => distance(b) < distance(a) ? b : a);
    const {x} = nearest(points), beside = X(x) < width / 2 ? 12 : -12;
    for (const end of ["x1", "x2"]) cross.setAttribute(end, X(x));
    showValues(tooltip, `${label} ${short(x)}`, models, nearest);
    const left = X(x) + beside - (beside < 0 ? tooltip.offsetWidth : 0);
    tooltip.style.left = Math.max(0, Math.min(left, width - tooltip.offsetWidth)) + "px";
    cross.setAttribute("visibility", "visible");
  };
  for (const event of ["pointermove", "pointerdown"]) svg.addEventListener(event, show);
  svg.addEventListener("pointerleave", event => {
    tooltip.hidden = event.pointerType === "mouse";
    if (tooltip.hidden) cross.setAttribute("visibility", "hidden");
  });
}

// Fills the tooltip with a line for each model: the nearest value of each of its curves.
function showValues(tooltip, title, models, nearest) {
  const names = Object.keys(models[0].curves);
  tooltip.replaceChildren(title);
  tooltip.hidden = false;
  const table = add(tooltip, "table"), head = add(table, "tr");
  if (names.length > 1) for (const name of ["", ...names]) add(head, "th", {class: "number"}, name);
  for (const {name, ink, curves} of models) {
    const row = add(table, "tr", {style: "color:" + ink});
    add(row, "td", {}, name);
    for (const curve of names) add(row, "td", {class: "number"}, nearest(curves[curve]).y.toFixed(3));
  }
}

function draw() {
  const axis = document.getElementById("axis").value, curves = [], positions = [], rates = [];
  const level = ([x, y]) => ({x, y, low: y, high: y});
  for (const [n, model] of data.models.entries()) {
    if (hidden.has(n)) continue;
    const {name} = model, color = `var(--c${n % 20})`, ink = n % 20 < 10 ? color : "var(--ink)";  // not of a pale color
    const points = ({mean, low, high, ...curve}) => (curve[axis] ?? curve.tokens.map(t => t * model.flopsPerToken))
      .map((x, k) => ({x, y: mean[k], low: low[k], high: high[k]}));
    const entries = () => Object.entries(model.curves).map(([key, curve]) => [key, points(curve)]);
    if (axis !== "flops" || model.flopsPerToken) curves.push({name, color, ink, curves: Object.fromEntries(entries())});
    positions.push({name, color, ink, curves: {val_loss: model.positions.map((y, k) => level([k + 1, y]))}});
    if (model.rates) rates.push(
      {name, color, ink, curves: {val_loss: model.rates.parabola.map(level)}, dots: model.rates.runs.map(level)});
  }
  const first = curves.flatMap(model => [model.curves.val_loss[0].high, model.curves.val_loss_streaming[0].high]);
  const options = {ceiling: 0.1 + Math.max(...first), bands: data.num_seeds > 1, baselines: data.baselines};
  chart("curves", curves, {label: AXES[axis], ...options});
  chart("positions", positions, {label: "tokens of context", log: true});
  const lowest = rates.map(({dots}) => Math.min(...dots.map(dot => dot.y)));
  if (data.models[0].rates) chart("rates", rates, {label: "learning rate", log: true, margin: 0.02, ceiling: 0.25 + Math.max(...lowest)});
}

for (const button of document.querySelectorAll(".legend button")) button.addEventListener("click", () => {
  const model = Number(button.dataset.model), isShown = hidden.delete(model);
  if (!isShown) hidden.add(model);
  button.setAttribute("aria-pressed", isShown);
  draw();
});
document.getElementById("axis").addEventListener("change", draw);
addEventListener("resize", draw);
draw();
