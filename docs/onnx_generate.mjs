// Continue a text by a character model in an ONNX file of keras_seq, with onnxruntime-web.
//
//     npm install onnxruntime-web
//     node onnx_generate.mjs model.onnx "ROMEO:" 200 0.8     # 200 characters; temperature 0 takes the likeliest
import * as ort from "onnxruntime-web";

// Three lines are Node's; in a page, the line below each takes its place.
const [path, prompt, count, temperature] = process.argv.slice(2);
// const [path, prompt, count, temperature] = ["model.onnx", "ROMEO:", 200, 0.8];
const file = new Uint8Array(await (await import("node:fs/promises")).readFile(path));
// const file = new Uint8Array(await (await fetch(path)).arrayBuffer());
const write = (text) => process.stdout.write(text);
// const write = (text) => document.body.append(text);

const session = await ort.InferenceSession.create(file);
const metadata = JSON.parse(readMetadata(file, "keras_seq"));
const { characters: known, oov_token } = metadata.tokenizer;
const characters = [...(oov_token === null ? "" : "\ufffd"), ...known]; // U+FFFD, id 0, is for all that have no id
const limit = metadata.context_length ?? Infinity;

let ids = [...prompt].map((c) => characters.indexOf(characters.includes(c) ? c : "\ufffd"));
if (ids.includes(-1)) throw new Error(`${prompt} has a character that the model does not know`);
let [state, start, read] = [initialState(), 0, 0]; // the state has ids[start], ..., ids[read - 1]
write(prompt);
for (let i = 0; i < count; i++) {
  while (ids.length - start > limit) { // it is full: begin again, half as far back
    start += Math.max(1, Math.floor(limit / 2));
    [state, read] = [initialState(), start];
  }
  const unread = Int32Array.from(ids.slice(read));
  const outputs = await session.run({ ids: new ort.Tensor("int32", unread, [1, unread.length]), ...state });
  state = Object.fromEntries(metadata.state.map(({ name }) => [name, outputs[`new_${name}`]]));
  read = ids.length;
  let scores = outputs.logits.data.slice(-metadata.vocabulary_size);
  if (Number(temperature)) // the largest of these is a draw by softmax(logits / temperature)
    scores = scores.map((logit) => logit / temperature - Math.log(-Math.log(Math.random())));
  ids.push(scores.reduce((best, score, id) => (score > scores[best] ? id : best), 0));
  write(characters[ids.at(-1)]);
}
write("\n");

function initialState() {
  const first = ({ shape, dtype, initial }) => {
    const sizes = shape.map((size) => size ?? 1); // one row
    const values = [initial].flat(Infinity);
    const array = { float32: Float32Array, int32: Int32Array }[dtype];
    const length = sizes.reduce((product, size) => product * size, 1);
    return new ort.Tensor(dtype, array.from({ length }, (_, i) => values[i % values.length]), sizes);
  };
  return Object.fromEntries(metadata.state.map((part) => [part.name, first(part)]));
}

// onnxruntime-web has no call for the metadata of a file: field 14 of its protocol buffer, pairs of a key and a value.
function readMetadata(bytes, name) {
  let at = 0;
  const number = () => {
    let [value, scale] = [0, 1];
    for (; bytes[at] > 127; scale *= 128) value += (bytes[at++] - 128) * scale;
    return value + bytes[at++] * scale;
  };
  const text = () => {
    const [, size] = [number(), number()];
    return new TextDecoder().decode(bytes.subarray(at, (at += size)));
  };
  while (at < bytes.length) {
    const [tag, size] = [number(), number()];
    if (tag === 14 * 8 + 2) {
      const [key, value] = [text(), text()];
      if (key === name) return value;
    } else if (tag % 8 === 2) at += size;
  }
}
