// Computes the step of a language model from its graph and weights, which the same file holds, and reads and writes
// text with it. No library, no network; in a page and in Node. `step_graph.py` writes the graph and explains it.
"use strict";

const KerasSeq = (() => {
  const ARRAYS = { float32: Float32Array, int32: Int32Array, bool: Uint8Array };
  const product = sizes => sizes.reduce((a, b) => a * b, 1);

  // ---- Where numbers lie: a tensor is a typed array in row-major order, and a table says which number goes where.

  const strides = shape => shape.map((_, axis) => product(shape.slice(axis + 1)));

  // Places of all elements of a part of a tensor: its sizes, and how far apart two neighbors along each axis are.
  // Equal tables are one: most operations have the same.
  const made = new Map();
  function places(sizes, steps, start = 0) {
    const key = [sizes, steps, start].join(";");
    if (made.has(key)) return made.get(key);
    let table = Int32Array.of(start);
    sizes.forEach((size, axis) => {
      const longer = new Int32Array(table.length * size);
      for (let i = 0; i < table.length; i++)
        for (let j = 0; j < size; j++) longer[i * size + j] = table[i] + j * steps[axis];
      table = longer;
    });
    made.set(key, table);
    return table;
  }

  // Places in an array of `shape` of the elements that it has when it is broadcast to `sizes`.
  function broadcast(shape, sizes) {
    const full = [...Array(sizes.length - shape.length).fill(1), ...shape];
    return places(sizes, strides(full).map((step, axis) => (full[axis] === 1 ? 0 : step)));
  }

  // ---- Operations of one, two and three tensors, element by element. Two have a loop each, which is compiled once.

  function rint(x) {
    const floor = Math.floor(x), part = x - floor;
    return part < 0.5 || (part === 0.5 && floor % 2 === 0) ? floor : floor + 1;
  }

  // 1 - erf(x): the series of erf near 0, the continued fraction of erfc elsewhere.
  function erfc(x) {
    if (x < -2.5) return 2 - erfc(-x);
    if (!(x > 2.5)) {
      let term = x, sum = x;
      for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
        term *= -x * x / n;
        sum += term / (2 * n + 1);
      }
      return 1 - 2 / Math.sqrt(Math.PI) * sum;
    }
    let tail = 0;
    for (let n = 40; n > 0; n--) tail = n / 2 / (x + tail);
    return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + tail);
  }

  const UNARY = {
    Abs: Math.abs, Ceil: Math.ceil, Cos: Math.cos, Erf: x => 1 - erfc(x), Erfc: erfc, Exp: Math.exp, Expm1: Math.expm1,
    Elu: x => (x > 0 ? x : Math.expm1(x)), Floor: Math.floor, IsFinite: Number.isFinite, IsNan: Number.isNaN,
    IsInf: x => Math.abs(x) === Infinity, Log: Math.log, Log1p: Math.log1p, LogicalNot: x => !x, Neg: x => -x,
    Reciprocal: x => 1 / x, Relu: x => Math.max(x, 0), Relu6: x => Math.min(Math.max(x, 0), 6), Rint: rint, Round: rint,
    Rsqrt: x => 1 / Math.sqrt(x), Sigmoid: x => 1 / (1 + Math.exp(-x)), Sign: Math.sign, Sin: Math.sin,
    Softplus: x => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))), Softsign: x => x / (1 + Math.abs(x)),
    Selu: x => 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * Math.expm1(x)),
    Sqrt: Math.sqrt, Square: x => x * x, Tan: Math.tan, Tanh: Math.tanh,
  };

  const BINARY = {
    AddV2: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] + b[q[i]]; },
    Sub: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] - b[q[i]]; },
    Mul: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] * b[q[i]]; },
    RealDiv: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] / b[q[i]]; },
    DivNoNan: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = b[q[i]] && a[p[i]] / b[q[i]]; },
    Pow: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] ** b[q[i]]; },
    Maximum: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = Math.max(a[p[i]], b[q[i]]); },
    Minimum: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = Math.min(a[p[i]], b[q[i]]); },
    SquaredDifference: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = (a[p[i]] - b[q[i]]) ** 2; },
    FloorDiv: (o, a, b, p, q) => {
      const rounded = o instanceof Float32Array ? Math.fround : x => x; // 0.7 / 0.1 is 7 in float32 only
      for (let i = 0; i < o.length; i++) o[i] = Math.floor(rounded(a[p[i]] / b[q[i]]));
    },
    FloorMod: (o, a, b, p, q) => {
      for (let i = 0; i < o.length; i++) {
        const divisor = b[q[i]], rest = a[p[i]] % divisor;
        o[i] = rest !== 0 && rest < 0 !== divisor < 0 ? rest + divisor : rest;
      }
    },
    Equal: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] === b[q[i]]; },
    NotEqual: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] !== b[q[i]]; },
    Less: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] < b[q[i]]; },
    LessEqual: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] <= b[q[i]]; },
    Greater: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] > b[q[i]]; },
    GreaterEqual: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] >= b[q[i]]; },
    LogicalAnd: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] & b[q[i]]; },
    LogicalOr: (o, a, b, p, q) => { for (let i = 0; i < o.length; i++) o[i] = a[p[i]] | b[q[i]]; },
  };

  // Reductions of `count` numbers of x, whose places are in a table from `first` on.
  const fold = (combine, start) => (x, table, first, count) => {
    let result = start;
    for (let i = first; i < first + count; i++) result = combine(result, x[table[i]]);
    return result;
  };
  const sum = fold((a, b) => a + b, 0);
  const REDUCTIONS = {
    Sum: sum, Mean: (x, table, first, count) => sum(x, table, first, count) / count, Prod: fold((a, b) => a * b, 1),
    Max: fold(Math.max, -Infinity), Min: fold(Math.min, Infinity), All: fold((a, b) => a & b, 1),
    Any: fold((a, b) => a | b, 0),
  };

  function softmax(x, isLog = false) {
    const result = new Float32Array(x.length), largest = x.reduce((a, b) => Math.max(a, b), -Infinity);
    const total = x.reduce((sum, z) => sum + Math.exp(z - largest), 0);
    x.forEach((z, i) => (result[i] = isLog ? z - largest - Math.log(total) : Math.exp(z - largest) / total));
    return result;
  }

  // Each takes a value of the graph, its output o, its inputs x and their values; it returns what computes o.
  const copied = (o, x, table) => () => { for (let i = 0; i < o.length; i++) o[i] = x[table[i]]; };
  const rows = function* (o, length) {
    for (let first = 0; first < o.length; first += length) yield [first, first + length];
  };

  const OTHERS = {
    Cast: ({ type }, o, [x]) => () => {
      for (let i = 0; i < o.length; i++) o[i] = type === "bool" ? x[i] !== 0 : x[i];
    },
    LeakyRelu: ({ alpha }, o, [x]) => () => {
      for (let i = 0; i < o.length; i++) o[i] = x[i] > 0 ? x[i] : alpha * x[i];
    },
    BroadcastTo: ({ shape }, o, [x], [from]) => copied(o, x, broadcast(from.shape, shape)),
    Transpose: ({ shape, axes }, o, [x], [from]) => {
      const steps = strides(from.shape);
      return copied(o, x, places(shape, axes.map(axis => steps[axis])));
    },
    Slice: ({ shape, begin, strides: every }, o, [x], [from]) => {
      const steps = strides(from.shape), start = steps.reduce((sum, step, axis) => sum + step * begin[axis], 0);
      return copied(o, x, places(shape, steps.map((step, axis) => step * every[axis]), start));
    },
    Pad: ({ shape, before, value }, o, [x], [from]) => {
      const steps = strides(shape), start = steps.reduce((sum, step, axis) => sum + step * before[axis], 0);
      const table = places(from.shape, steps, start);
      return () => { o.fill(value); for (let i = 0; i < x.length; i++) o[table[i]] = x[i]; };
    },
    SelectV2: ({ shape }, o, [condition, a, b], inputs) => {
      const [r, p, q] = inputs.map(from => broadcast(from.shape, shape));
      return () => { for (let i = 0; i < o.length; i++) o[i] = condition[r[i]] ? a[p[i]] : b[q[i]]; };
    },
    ConcatV2: ({ shape, axis }, o, x, inputs) => {
      const sizes = inputs.map(from => product(from.shape.slice(axis)));
      return () => {
        let at = 0;
        for (let row = 0; at < o.length; row++)
          x.forEach((part, n) => { o.set(part.subarray(row * sizes[n], (row + 1) * sizes[n]), at); at += sizes[n]; });
      };
    },
    GatherV2: ({ axis, batch_axes }, o, [x, ids], [{ shape }]) => {
      const [batch, outer] = [shape.slice(0, batch_axes), shape.slice(batch_axes, axis)].map(product);
      const inner = product(shape.slice(axis + 1)), count = ids.length / batch;
      return () => {
        for (let row = 0, at = 0; row < batch * outer; row++)
          for (let i = 0; i < count; i++, at += inner) {
            const first = (row * shape[axis] + ids[Math.floor(row / outer) * count + i]) * inner;
            o.set(x.subarray(first, first + inner), at);
          }
      };
    },
    OneHot: ({ shape, axis, on, off }, o, [ids]) => {
      const depth = shape[axis], inner = product(shape.slice(axis + 1));
      return () => {
        o.fill(off);
        ids.forEach((id, i) => {
          if (id >= 0 && id < depth) o[(Math.floor(i / inner) * depth + id) * inner + (i % inner)] = on;
        });
      };
    },
    Cumsum: ({ shape, axis, exclusive, reverse }, o, [x]) => {
      const size = shape[axis], inner = product(shape.slice(axis + 1));
      return () => {
        for (let row = 0; row < o.length / size; row++) {
          const first = Math.floor(row / inner) * size * inner + (row % inner);
          for (let n = 0, sum = 0; n < size; n++) {
            const at = first + (reverse ? size - 1 - n : n) * inner;
            o[at] = exclusive ? sum : sum + x[at];
            sum += x[at];
          }
        }
      };
    },
    Softmax: ({ shape }, o, [x]) => () => {
      for (const [first, end] of rows(o, shape.at(-1))) o.set(softmax(x.subarray(first, end)), first);
    },
    LogSoftmax: ({ shape }, o, [x]) => () => {
      for (const [first, end] of rows(o, shape.at(-1))) o.set(softmax(x.subarray(first, end), true), first);
    },
    MatMul: ({ shape, transpose }, o, [a, b], inputs) => {
      const batch = shape.slice(0, -2), [rowsOf, columns] = shape.slice(-2);
      const [from, other] = inputs.map(({ shape }) => {
        const full = [...Array(batch.length + 2 - shape.length).fill(1), ...shape];
        const steps = strides(full).map((step, axis) => (axis < batch.length && full[axis] === 1 ? 0 : step));
        return { starts: places(batch, steps), steps: steps.slice(-2), sizes: full.slice(-2) };
      });
      const [am, ak] = transpose[0] ? from.steps.slice().reverse() : from.steps;
      const [bk, bn] = transpose[1] ? other.steps.slice().reverse() : other.steps;
      const depth = from.sizes[transpose[0] ? 0 : 1], total = new Float64Array(columns);
      return () => {
        for (let n = 0, at = 0; n < from.starts.length; n++)
          for (let m = 0; m < rowsOf; m++, at += columns) {
            multiply(a, from.starts[n] + m * am, ak, b, other.starts[n], bk, bn, depth, total);
            o.set(total, at);
          }
      };
    },
  };

  // total[j] = sum over k of a[start + k step] b[k, j], in the order in which the numbers of b lie.
  function multiply(a, start, step, b, first, bk, bn, depth, total) {
    if (bn === 1) {
      total.fill(0);
      for (let k = 0; k < depth; k++) {
        const x = a[start + k * step], row = first + k * bk;
        for (let j = 0; j < total.length; j++) total[j] += x * b[row + j];
      }
      return;
    }
    for (let j = 0; j < total.length; j++) {
      let sum = 0;
      for (let k = 0, at = first + j * bn; k < depth; k++, at += bk) sum += a[start + k * step] * b[at];
      total[j] = sum;
    }
  }

  // Returns a function that computes a value of the graph.
  function computation(value, o, x, inputs) {
    const { op, shape, axes } = value;
    if (op in UNARY) {
      const f = UNARY[op], input = x[0];
      return () => { for (let i = 0; i < o.length; i++) o[i] = f(input[i]); };
    }
    if (op in BINARY) {
      const [p, q] = inputs.map(from => broadcast(from.shape, shape));
      return () => BINARY[op](o, x[0], x[1], p, q);
    }
    if (op in REDUCTIONS) {
      const sizes = inputs[0].shape, steps = strides(sizes), count = product(axes.map(axis => sizes[axis]));
      const order = [...sizes.keys()].filter(axis => !axes.includes(axis)).concat(axes);
      const table = places(order.map(axis => sizes[axis]), order.map(axis => steps[axis]));
      return () => { for (let i = 0; i < o.length; i++) o[i] = REDUCTIONS[op](x[0], table, i * count, count); };
    }
    return OTHERS[op](value, o, x, inputs);
  }

  // ---- A graph: what does not depend on the inputs is computed once, then each list of targets has a plan.

  class Graph {
    constructor(values, weights) {
      this.values = values;
      this.arrays = [];
      this.run = [];
      this.isConstant = [];
      values.forEach((value, n) => this.add(value, n, weights));
    }

    add(value, n, weights) {
      const inputs = value.in || [], x = inputs.map(i => this.arrays[i]);
      const isGiven = "numbers" in value || "weight" in value;
      this.isConstant[n] = isGiven || (inputs.length > 0 && inputs.every(i => this.isConstant[i]));
      if (value.op === "Reshape") this.arrays[n] = x[0];
      else if ("weight" in value) this.arrays[n] = weights[value.weight];
      else if ("numbers" in value) this.arrays[n] = ARRAYS[value.type].from(value.numbers, Number);
      else {
        this.arrays[n] = new ARRAYS[value.type](product(value.shape));
        if (value.op === "Input") return;
        this.run[n] = computation(value, this.arrays[n], x, inputs.map(i => this.values[i]));
        if (this.isConstant[n]) this.run[n]();
      }
    }

    plan(targets) {
      const needed = new Set(targets);
      for (let n = this.values.length - 1; n >= 0; n--)
        if (needed.has(n) && !this.isConstant[n]) (this.values[n].in || []).forEach(i => needed.add(i));
      return this.values.flatMap((_, n) => (needed.has(n) && !this.isConstant[n] && this.run[n]) || []);
    }
  }

  // ---- Data elements of a page: a JSON text for each model, and its weights in base64, checked by their CRC-32.

  const CRC_OF_BYTE = Int32Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = (byte >>> 1) ^ (byte & 1 ? 0xedb88320 : 0);
    return byte;
  });

  function crc32(bytes) {
    let crc = -1;
    for (let i = 0; i < bytes.length; i++) crc = (crc >>> 8) ^ CRC_OF_BYTE[(crc ^ bytes[i]) & 255];
    return ~crc >>> 0;
  }

  function decode(spec, base64) {
    let text = "";
    try {
      text = atob(base64.trim());
    } catch { /* cut within a group of four characters: too few bytes */ }
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    if (bytes.length !== spec.bytes || crc32(bytes) !== spec.crc32)
      throw new Error(`The weights of ${spec.title} are damaged: ${bytes.length.toLocaleString("en")} of ` +
        `${spec.bytes.toLocaleString("en")} bytes can be read. Get the page again.`);
    return bytes;
  }

  // A weight in 8 bits is whole numbers from -127 to 127 in blocks, each with a scale, which come before them.
  function unpacked(spec, bytes) {
    let at = 0;
    const take = (kind, count) => {
      const part = new kind(bytes.buffer, bytes.byteOffset + at, count);
      at += Math.ceil(part.byteLength / 4) * 4;
      return part;
    };
    return spec.weights.map(({ type, size, block }) => {
      if (!block) return take(ARRAYS[type], size);
      const scales = take(Float32Array, Math.ceil(size / block)), whole = take(Int8Array, size);
      const weight = new Float32Array(size);
      for (let i = 0; i < size; i++) weight[i] = whole[i] * scales[Math.floor(i / block)];
      return weight;
    });
  }

  class Model {
    constructor(spec, base64) {
      Object.assign(this, { title: spec.title, description: spec.description, spec });
      this.contextLength = spec.context_length;
      this.characters = [...(spec.unknown_id === null ? "" : "\ufffd"), ...spec.characters];
      // A field of a page cannot hold a carriage return: it is written as its sign there.
      this.ids = new Map(this.characters.map((character, id) => [character, id]));
      if (this.ids.has("\r") && !this.ids.has("␍")) {
        this.characters[this.ids.get("\r")] = "␍";
        this.ids.set("␍", this.ids.get("\r"));
      }
      this.graph = new Graph(spec.values, unpacked(spec, decode(spec, base64)));
      this.inputs = [];
      spec.values.forEach((value, n) => { if (value.op === "Input") this.inputs[value.input] = this.graph.arrays[n]; });
      this.stepPlan = this.graph.plan([spec.logits, ...spec.new_state]);
      this.lookPlan = null; // made when it is first needed
    }

    encode(text) {
      const unknown = this.spec.unknown_id ?? -1;
      return Int32Array.from([...text], character => this.ids.get(character) ?? unknown);
    }

    initialState() {
      return this.spec.state.map(({ shape, type, initial }) => {
        if (Array.isArray(initial)) return ARRAYS[type].from(initial.flat(Infinity));
        return new ARRAYS[type](product(shape)).fill(initial);
      });
    }

    // The logits after one more id, and the new state; arrays are never changed afterwards.
    step(id, state, plan = this.stepPlan) {
      this.inputs[0][0] = id;
      state.forEach((part, n) => this.inputs[n + 1].set(part));
      for (const run of plan) run();
      const { arrays } = this.graph;
      return { logits: arrays[this.spec.logits].slice(), state: this.spec.new_state.map(n => arrays[n].slice()) };
    }

    // What `step` returns, and the tensors of the views.
    look(id, state) {
      const { logits, new_state, views } = this.spec;
      const shown = views.flatMap(({ tensors }) => Object.values(tensors));
      this.lookPlan ??= this.graph.plan([logits, ...new_state, ...shown]);
      const result = this.step(id, state, this.lookPlan), { arrays, values } = this.graph;
      const tensor = n => ({ shape: values[n].shape, values: arrays[n].slice() });
      const named = tensors => Object.fromEntries(Object.entries(tensors).map(([name, n]) => [name, tensor(n)]));
      return { ...result, views: views.map(view => ({ ...view, tensors: named(view.tensors) })) };
    }
  }

  function load(document) {
    const elements = [...document.querySelectorAll("script.model")];
    const weights = [...document.querySelectorAll("script.weights")];
    let specs;
    try {
      const { models } = JSON.parse(document.querySelector("#page-data").textContent);
      if (weights.length !== models) throw new SyntaxError();
      specs = elements.map(element => JSON.parse(element.textContent));
    } catch {
      throw new Error("The page ends too early: a part of its models is missing. Get the page again.");
    }
    return specs.map((spec, n) => new Model(spec, weights[n].textContent));
  }

  // ---- Reading: one text by one model. Its cache starts anew as in keras_seq/generation/sampling_loop.py.

  const MEMORY = 128 * 2 ** 20; // bytes of the states that are kept to return to

  function cacheStart(t, contextLength) {
    const stride = Math.max(1, Math.floor(contextLength / 2));
    return contextLength === null || t <= contextLength ? 0 : Math.ceil((t - contextLength) / stride) * stride;
  }

  class Reader {
    constructor(model) {
      Object.assign(this, { model, every: 16, kept: [], logits: [], ids: [], forgets: new Set(), done: 0 });
      this.setText(new Int32Array(0), []);
    }

    setText(ids, forgets) {
      const now = new Set(forgets);
      const isEqual = t => this.ids[t] === ids[t] && this.forgets.has(t) === now.has(t);
      let common = 0;
      while (common < Math.min(this.done, ids.length) && isEqual(common)) common++;
      const losses = new Float32Array(ids.length).fill(NaN);
      losses.set((this.losses || losses).subarray(0, common));
      Object.assign(this, { ids, forgets: now, losses });
      this.findKnown();
      this.sought = null;
      this.kept = this.kept.filter(point => point.t <= common);
      if (!this.kept.length) this.kept = [this.begin(0)];
      if (!this.point || this.point.t > common) this.point = this.kept.at(-1);
      this.done = this.point.t;
      this.logits.length = Math.min(this.logits.length, this.done + 1);
    }

    // Unknown characters are skipped: `known` are the positions of the others, `rank` counts those before a position,
    // `base` those before the last forgetting.
    findKnown() {
      Object.assign(this, { known: [], rank: [], base: [] });
      let base = 0;
      this.ids.forEach((id, t) => {
        if (this.forgets.has(t)) base = this.known.length;
        this.rank.push(this.known.length);
        this.base.push(base);
        if (id >= 0) this.known.push(t);
      });
    }

    begin(t) {
      return { t, start: 0, state: this.model.initialState(), logits: null, views: [], again: [] };
    }

    // The point after one step: of the character at point.t, or where the cache starts anew at that character, of one
    // that is read `again` before it. With the method "look", a step of the character itself has the views.
    next(point, method = "step") {
      const { ids, known, model } = this, { t, again } = point;
      if (again.length) return { ...point, state: model.step(ids[again[0]], point.state).state, again: again.slice(1) };
      if (this.forgets.has(t)) point = this.begin(t);
      if (ids[t] < 0) return { ...point, t: t + 1, views: [] };
      const first = this.base[t], start = cacheStart(this.rank[t] + 1 - first, model.contextLength);
      if (start > point.start) {
        const earlier = known.slice(first + start, this.rank[t]);
        return this.next({ ...point, start, state: model.initialState(), again: earlier }, method);
      }
      return { ...point, views: [], ...model[method](ids[t], point.state), t: t + 1 };
    }

    advance(milliseconds) {
      const end = performance.now() + milliseconds;
      while (this.done < this.ids.length) {
        if (!this.point.again.length) this.score(this.done);
        this.point = this.next(this.point);
        if (this.point.t > this.done) {
          this.done = this.point.t;
          if (this.done % this.every === 0) this.keep(this.point);
        }
        if (performance.now() > end) break;
      }
      this.logits[this.done] = this.point.logits;
      return this.done === this.ids.length;
    }

    score(t) {
      const logits = this.forgets.has(t) ? null : this.point.logits;
      this.logits[t] = this.point.logits;
      this.losses[t] = logits && this.ids[t] >= 0 ? -softmax(logits, true)[this.ids[t]] / Math.LN2 : NaN;
    }

    keep(point) {
      this.kept.push(point);
      const bytes = point.state.reduce((sum, part) => sum + part.byteLength, 0);
      if (bytes * this.kept.length <= MEMORY) return;
      this.every *= 2;
      this.kept = this.kept.filter(({ t }) => t % this.every === 0);
    }

    probabilities(t) {
      const logits = this.forgets.has(t) || t > this.done ? null : this.logits[t];
      return logits ? softmax(logits) : null;
    }

    // The views after the character at t, or null if that takes longer: then ask again.
    look(t, milliseconds = Infinity) {
      if (t >= this.done || this.ids[t] < 0) return [];
      const end = performance.now() + milliseconds;
      if (this.sought?.t !== t) this.sought = { t, point: this.kept.findLast(point => point.t <= t) };
      const { sought } = this;
      while (sought.point.t <= t) {
        sought.point = this.next(sought.point, sought.point.t === t ? "look" : "step");
        if (performance.now() > end && sought.point.t <= t) return null;
      }
      const { start, views } = sought.point;
      return views.flatMap(view => SHOWN[view.kind](view, p => this.known[this.base[t] + start + p]));
    }
  }

  // How a page gets each kind of view; `place` is the position in the text of a position in a cache.
  const SHOWN = {
    gates: ({ kind, layer, tensors }) => {
      const signals = Object.entries(tensors).map(([name, { values }]) => {
        const high = values.reduce((largest, x) => Math.max(largest, Math.abs(x)), 1);
        return { name, values, high };
      });
      return [{ kind, layer, signals }];
    },
    attention: ({ kind, layer, tensors: { weights, positions } }, place) => {
      const at = positions.values, slots = [...at.keys()].filter(slot => at[slot] >= 0); // the others are empty
      const heads = Array.from({ length: weights.shape[1] }, (_, head) =>
        Float32Array.from(slots, slot => weights.values[head * at.length + slot]));
      return [{ kind, layer, heads, positions: Int32Array.from(slots, slot => place(at[slot])) }];
    },
    state: ({ kind, layer, tensors }) => Object.entries(tensors).map(([name, { shape, values }]) => ({
      kind, layer, name, rows: product(shape.slice(1, -1)), columns: shape.at(-1), values,
    })),
    lens: ({ kind, tensors }) => {
      const layers = Object.entries(tensors);
      return [{ kind, layers: layers.map(([layer, { values }]) => ({ layer, probabilities: softmax(values) })) }];
    },
  };

  // ---- Writing: the draws of keras_seq/random_draws.py and the filters of generation/samplers.py, in float32.

  // Ten rounds of Philox4x32; the counter has four words, the key two.
  function philox([a, b, c, d], [first, second]) {
    const word = 0xffffffffn;
    for (let round = 0; round < 10; round++) {
      const low = 0xd2511f53n * a, high = 0xcd9e8d57n * c;
      [a, b, c, d] = [(high >> 32n) ^ b ^ first, high & word, (low >> 32n) ^ d ^ second, low & word];
      [first, second] = [(first + 0x9e3779b9n) & word, (second + 0xbb67ae85n) & word];
    }
    return [a, b, c, d];
  }

  // The n-th number of the first row: it depends on nothing else but the seed.
  function uniform(seed, n) {
    const words = [BigInt(seed) & 0xffffffffn, BigInt(seed) >> 32n, 0n, 0n];
    const mixed = philox(words, [0x3ec8f720n, 0x02461e29n]);
    const drawn = philox([BigInt(Math.floor(n / 4)), 0n, mixed[2], mixed[3]], mixed);
    return Number(drawn[n % 4] % 2n ** 23n) / 2 ** 23;
  }

  function sample(logits, { temperature, topP }, draw) {
    const ids = [...logits.keys()].sort((i, j) => logits[j] - logits[i]); // a stable sort
    if (temperature === 0) return ids[0];
    const scaled = Float32Array.from(ids, id => Math.fround(logits[id] - logits[ids[0]]) / Math.fround(temperature));
    let p = softmax(scaled);
    if (topP < 1) {
      let before = 0;
      const kept = scaled.map((z, i) => {
        const isKept = before < Math.fround(topP);
        before = Math.fround(before + p[i]);
        return isKept ? z : -Infinity;
      });
      p = softmax(kept);
    }
    let total = 0;
    const cumulative = p.map(x => (total = Math.fround(total + x)));
    return ids[cumulative.filter(c => c <= Math.fround(draw * total)).length];
  }

  // Continues the text of a reader, which has to have read all of it; the caller appends what `next` returns.
  class Writer {
    constructor(reader, { temperature = 1, topP = 1, seed = 0 } = {}) {
      Object.assign(this, { reader, options: { temperature, topP }, seed, count: 0 });
    }

    next() {
      const { ids, logits } = this.reader;
      return sample(logits[ids.length], this.options, uniform(this.seed, this.count++));
    }
  }

  const OPERATIONS = ["Reshape", ...[UNARY, BINARY, REDUCTIONS, OTHERS].flatMap(Object.keys)];
  return { load, Reader, Writer, OPERATIONS };
})();

if (typeof module !== "undefined") module.exports = KerasSeq;
