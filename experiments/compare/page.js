const SVG = "http://www.w3.org/2000/svg";
const hidden = new Set();
const formatNumber = value => value >= 1e12 ? +(value / 1e12).toFixed(2) + " T" : value >= 1e9 ? +(value / 1e9).toFixed(2) + " G"
  : value >= 1e6 ? +(value / 1e6).toFixed(2) + " M" : value >= 1e4 ? +(value / 1e3).toFixed(1) + " k" : String(+value.toFixed(1));

function add(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough);
  const values = [];
  for (let n = Math.ceil(low / step); n * step <= high * (1 + 1e-9); n++) values.push(+(n * step).toPrecision(12));
  return values;
}

// Draw series [{name, color, points: [{x, y, low, high}], style}]; the tooltip shows the values at the pointer.
function chart(id, series, options) {
  const container = document.getElementById(id), tooltip = document.getElementById(id + "-tooltip");
  container.replaceChildren();
  const all = series.flatMap(one => one.points);
  if (!all.length) { tooltip.textContent = "No model is selected."; return; }
  const width = container.clientWidth, height = Math.min(420, Math.max(260, width * 0.55));
  const box = {left: 44, right: width - 8, top: 10, bottom: height - 40};
  const log = options.log, scale = log ? x => Math.log2(x) : x => x;
  const xs = all.map(point => scale(point.x)), left = log ? 0 : Math.min(0, ...xs), right = Math.max(...xs, left + 1e-9);
  const low = Math.min(...all.map(point => point.low)) - 0.05;
  const high = Math.max(options.ceiling ?? Math.max(...all.map(point => point.high)) + 0.05, low + 0.3);
  const X = x => box.left + (scale(x) - left) / (right - left) * (box.right - box.left);
  const Y = y => box.bottom - (y - low) / (high - low) * (box.bottom - box.top);
  const svg = add(container, "svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label});
  const clip = id + "-clip";
  add(add(svg, "clipPath", {id: clip}), "rect",
    {x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top});
  for (const y of ticks(low, high, 6)) {
    add(svg, "line", {class: "grid", x1: box.left, x2: box.right, y1: Y(y), y2: Y(y)});
    add(svg, "text", {x: box.left - 6, y: Y(y) + 4, "text-anchor": "end"}, +y.toFixed(3));
  }
  const marks = log ? [...Array(Math.floor(right) + 1).keys()].map(n => 2 ** n) : ticks(left, right, width < 500 ? 3 : 6);
  for (const x of marks) add(svg, "text", {x: X(x), y: box.bottom + 17, "text-anchor": "middle"}, formatNumber(x));
  add(svg, "text", {x: box.right, y: height - 5, "text-anchor": "end"}, options.label);
  add(svg, "text", {x: box.left, y: height - 5}, "loss (nats per character)");
  const lines = options.baselines ?? [], offScale = lines.filter(line => line.loss <= low || line.loss >= high);
  const notes = [options.note, offScale.length ? "Baselines off the scale: "
    + offScale.map(line => `${line.name} ${line.loss.toFixed(2)}`).join(", ") + "." : ""];
  document.getElementById(id + "-note").textContent = notes.join(" ");
  let last = Infinity;
  const onScale = lines.filter(line => !offScale.includes(line)).sort((a, b) => a.loss - b.loss);
  for (const {loss} of onScale) add(svg, "line", {class: "baseline", x1: box.left, x2: box.right, y1: Y(loss), y2: Y(loss)});
  for (const line of onScale) {
    if (last - Y(line.loss) < 13) continue;
    last = Y(line.loss);
    add(svg, "text", {x: box.right, y: last - 3, "text-anchor": "end", "font-size": 11}, line.name);
  }
  const clipped = add(svg, "g", {"clip-path": `url(#${clip})`});
  for (const one of series) {
    const path = points => points.map((point, n) => (n ? "L" : "M") + X(point[0]).toFixed(1) + " " + Y(point[1]).toFixed(1)).join("");
    if (options.bands) {
      const edge = [...one.points.map(p => [p.x, p.high]), ...one.points.map(p => [p.x, p.low]).reverse()];
      add(clipped, "path", {class: "band", d: path(edge) + "Z", style: `fill:${one.color}`});
    }
    add(clipped, "path", {class: "curve", d: path(one.points.map(p => [p.x, p.y])), style: `stroke:${one.color};${one.style}`,
      "data-series": one.name});
  }
  const cross = add(svg, "line", {class: "grid", y1: box.top, y2: box.bottom, visibility: "hidden"});
  const show = event => {
    const at = (event.clientX - container.getBoundingClientRect().left - box.left) / (box.right - box.left);
    const target = left + Math.min(1, Math.max(0, at)) * (right - left);
    const near = points => points.reduce((a, b) => Math.abs(scale(b.x) - target) < Math.abs(scale(a.x) - target) ? b : a);
    const best = near(all);
    cross.setAttribute("x1", X(best.x)); cross.setAttribute("x2", X(best.x)); cross.setAttribute("visibility", "visible");
    tooltip.replaceChildren(`${options.label} ${formatNumber(best.x)}`);
    for (const one of series) {
      const point = near(one.points);
      const span = options.bands && point.high > point.low ? ` (${point.low.toFixed(3)} to ${point.high.toFixed(3)})` : "";
      const line = document.createElement("div");
      line.style.color = one.color;
      line.textContent = `${one.name} ${point.y.toFixed(3)}${span}`;
      tooltip.append(line);
    }
  };
  tooltip.style.minHeight = `${1.5 * (series.length + 1)}em`;  // so that nothing below moves when it is filled
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
}

const STYLES = {"train loss": "opacity:.4;stroke-width:1.3", "val_loss": "", "val_loss_streaming": "stroke-dasharray:2 3"};

function draw() {
  const axis = document.getElementById("axis").value, visibleModels = data.models.map((model, n) => [model, n]).filter(([, n]) => !hidden.has(n));
  const series = [], positions = [];
  let ceiling = 0;
  for (const [model, n] of visibleModels) {
    const color = `var(--c${n % 10})`;
    for (const name in model.curves) {
      const curve = model.curves[name];
      const x = axis === "seconds" ? curve.seconds : curve.tokens.map(t => axis === "flops" ? t * model.flopsPerToken : t);
      const points = x.map((at, k) => ({x: at, y: curve.mean[k], low: curve.low[k], high: curve.high[k]}));
      if (name !== "train loss") ceiling = Math.max(ceiling, curve.high[0] + 0.1);
      series.push({name: `${model.name}, ${name}`, color, points, style: STYLES[name]});
    }
    const points = model.positions.map((y, k) => ({x: k + 1, y, low: y, high: y}));
    positions.push({name: model.name, color, points, style: ""});
  }
  const label = {tokens: "tokens", seconds: "seconds of training", flops: "training FLOPs"}[axis];
  const note = "Solid: val_loss; dotted: val_loss_streaming; faint: train loss."
    + (data.num_seeds > 1 ? " Means over the seeds, with bands from the lowest to the highest." : "");
  chart("curves", series, {label, note, ceiling, bands: data.num_seeds > 1, baselines: data.baselines});
  chart("positions", positions, {label: "position", note: "", log: true});
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
  const value = (row, n) => {
    const text = row.cells[n].textContent, number = parseFloat(text.replace(/,/g, ""));
    return isNaN(number) ? text : number;
  };
  headers.forEach((header, n) => header.addEventListener("click", () => {
    const down = header.getAttribute("aria-sort") === "ascending";
    headers.forEach(other => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a, n), value(b, n)];
      return (typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1) * (down ? -1 : 1);
    });
    body.append(...rows);
  }));
}
draw();
