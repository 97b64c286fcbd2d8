// Runs the engine of a page in Node: node run_engine.js PAGE, with requests as JSON on standard input.
"use strict";
const fs = require("node:fs");
const KerasSeq = require("../../keras_seq/saving/templates/engine.js");

// As much of a document as `load` asks for.
function documentOf(page) {
  const elements = [...page.matchAll(/<script ([^>]*)>([^<]*)<\/script>/g)];
  const having = attribute => elements.filter(([, attributes]) => attributes.includes(attribute))
    .map(([, , textContent]) => ({ textContent }));
  return {
    querySelectorAll: selector => having(`class="${selector.split(".")[1]}"`),
    querySelector: selector => having(`id="${selector.slice(1)}"`)[0],
  };
}

const models = KerasSeq.load(documentOf(fs.readFileSync(process.argv[2], "utf-8")));
const plain = value => JSON.parse(JSON.stringify(value, (_, x) => (ArrayBuffer.isView(x) ? [...x].map(number) : x)));
const number = x => (Number.isFinite(x) ? x : String(x)); // which JSON has not

const METHODS = {
  // Logits and states after each of some ids, the first from the initial state.
  steps: ({ model, ids }) => {
    let state = models[model].initialState();
    return ids.map(id => {
      const result = models[model].step(id, state);
      state = result.state;
      const named = state.map((part, n) => [models[model].spec.state[n].name, part]);
      return plain({ logits: result.logits, state: Object.fromEntries(named) });
    });
  },
  write: ({ model, prompt, count, ...options }) => {
    const reader = new KerasSeq.Reader(models[model]), writer = new KerasSeq.Writer(reader, options);
    let text = prompt;
    for (let n = 0; n < count; n++) {
      reader.setText(models[model].encode(text), []);
      reader.advance(Infinity);
      text += models[model].characters[writer.next()];
    }
    return text;
  },
  // What a reader says of a text after each of some edits: [text, forgets], ...; `looks` are positions in the last one.
  read: ({ model, edits, looks = [] }) => {
    const reader = new KerasSeq.Reader(models[model]);
    for (const [text, forgets] of edits) {
      reader.setText(models[model].encode(text), forgets);
      while (!reader.advance(0));
    }
    const look = t => {
      let views = null;
      while (!views) views = reader.look(t, 0); // a step at a time
      return views;
    };
    return plain({ losses: reader.losses, next: reader.probabilities(reader.ids.length), views: looks.map(look) });
  },
  speed: ({ model, count }) => {
    let state = models[model].initialState();
    const start = performance.now();
    for (let n = 0; n < count; n++) ({ state } = models[model].step(n % models[model].characters.length, state));
    return count / (performance.now() - start) * 1000;
  },
  operations: () => KerasSeq.OPERATIONS,
};

const requests = JSON.parse(fs.readFileSync(0, "utf-8"));
console.log(JSON.stringify(requests.map(({ method, ...request }) => METHODS[method](request))));
