// An adapter of the exec protocol (spec/exec_protocol.md) for Node, without dependencies:
//
//     nibblespec conformance --backend 'exec:node adapter.mjs'
//
// It reads messages and writes answers; what is computed is in codes.mjs.

import { readSync, writeSync } from "node:fs";

import * as codes from "./codes.mjs";

const CAPABILITIES = {
  operations: [
    ...["pack_words", "unpack_words", "dashq_reconstruct", "pack_planes", "unpack_planes"],
    ...["nested_reconstruct", "quantize_activations", "kv_quantize", "kv_dequantize"],
  ],
  dashq_rounding: "fused",
};

// Each call gets the line and its arrays by name and returns the arrays of the answer.
const CALLS = {
  echo: (line) => line.arrays,

  pack_words: ({ nbits }, { codes: given }) => {
    const words = codes.packWords(given.bytes, nbits);
    return [array("int32", [words.length], new Uint8Array(words.buffer))];
  },

  unpack_words: ({ nbits, count }, { words }) => [
    array("uint8", [count], codes.unpackWords(unsigned(words), nbits, count)),
  ],

  dashq_reconstruct: ({ module, dtype }, { words, scale, zero }) => {
    const weight = codes.dashqReconstruct(unsigned(words), floats(scale), floats(zero), module);
    const shape = [module.out_features, module.in_features];
    return [array(dtype, shape, codes.writeFloats(dtype, weight))];
  },

  pack_planes: (line, { q4, qr }) => {
    const shape = [q4.shape[0], q4.shape[1] / 2];
    return [q4, qr].map((one) => array("uint8", shape, codes.packPlane(signed(one))));
  },

  unpack_planes: (line, { hi, lo }) =>
    [hi, lo].map((one) => array("int8", doubled(one.shape), bytes(codes.unpackPlane(one.bytes)))),

  nested_reconstruct: ({ plane, dtype }, { hi, lo, scale }) => {
    const low = plane === "draft" ? null : lo.bytes;
    const weight = codes.nestedReconstruct(hi.bytes, low, floats(scale));
    return [array(dtype, doubled(hi.shape), codes.writeFloats(dtype, weight))];
  },

  quantize_activations: ({ group }, { x }) => {
    const [rows, columns] = x.shape;
    const width = group === -1 ? columns : group;
    const found = codes.quantizeActivations(floats(x), width);
    return [
      array("int8", x.shape, bytes(found.codes)),
      array("float32", [rows, columns / width], bytes(found.scales)),
    ];
  },

  kv_quantize: (line, { x, offset }) => {
    const found = codes.kvQuantize(floats(x), offset && floats(offset), x.shape.slice(-3));
    const rows = x.shape.slice(0, -1);
    const plane = [...rows, x.shape.at(-1) / 2];
    return [
      array("uint8", plane, found.hi),
      array("uint8", plane, found.lo),
      array("float32", rows, bytes(found.scales)),
    ];
  },

  kv_dequantize: ({ plane }, { hi, lo, scale }) => {
    const low = plane === "draft" ? null : lo.bytes;
    const values = codes.nestedReconstruct(hi.bytes, low, floats(scale));
    return [array("float32", doubled(hi.shape), bytes(values))];
  },
};

const array = (dtype, shape, bytes) => ({ dtype, shape, bytes });
const bytes = (typed) => new Uint8Array(typed.buffer);
const doubled = (shape) => [...shape.slice(0, -1), 2 * shape.at(-1)];
const floats = (given) => codes.readFloats(given.dtype, given.bytes);
const signed = (given) => new Int8Array(given.bytes.slice().buffer);
const unsigned = (given) => new Uint32Array(given.bytes.slice().buffer);

function hello(line) {
  const node = `Node ${process.version} on ${process.arch}`;
  const capabilities = CAPABILITIES;
  return { protocol: 1, name: "javascript-example", version: "1", device: node, capabilities };
}

function answer(line) {
  if (!(line.call in CALLS)) throw new Error(`${line.call}: not implemented`);
  const byName = Object.fromEntries(line.arrays.map((given) => [given.name, given]));
  return CALLS[line.call](line, byName);
}

// ---- messages ----

const chunk = new Uint8Array(65536);
let kept = new Uint8Array(0); // read, but not asked for yet

// Return the next line without its line feed, or null at the end of standard input.
function readLine() {
  let line = "";
  for (;;) {
    const end = kept.indexOf(10);
    line += Buffer.from(end < 0 ? kept : kept.subarray(0, end)).toString("latin1");
    kept = kept.subarray(end < 0 ? kept.length : end + 1);
    if (end >= 0) return line;
    const count = readSync(0, chunk);
    if (count === 0) return null;
    kept = chunk.slice(0, count);
  }
}

// Return the next `size` bytes.
function readBytes(size) {
  const found = new Uint8Array(size);
  let count = Math.min(size, kept.length);
  found.set(kept.subarray(0, count));
  kept = kept.subarray(count);
  while (count < size) {
    const more = readSync(0, found, count, size - count);
    if (more === 0) throw new Error("standard input ended within a payload");
    count += more;
  }
  return found;
}

function write(line, arrays) {
  const text = new TextEncoder().encode(JSON.stringify(line) + "\n");
  for (const part of [text, ...arrays.map((one) => one.bytes)]) {
    for (let done = 0; done < part.length; ) done += writeSync(1, part, done);
  }
}

for (let text = readLine(); text !== null; text = readLine()) {
  const line = JSON.parse(text);
  const payload = readBytes(line.payload);
  let begin = 0;
  for (const given of line.arrays) {
    const size = given.bytes;
    given.bytes = payload.subarray(begin, (begin += size));
  }
  if (line.call === "hello") {
    write({ id: line.id, ...hello(line) }, []);
    continue;
  }
  try {
    const arrays = answer(line);
    const described = arrays.map(({ dtype, shape }) => ({ dtype, shape }));
    const size = arrays.reduce((sum, one) => sum + one.bytes.length, 0);
    write({ id: line.id, arrays: described, payload: size }, arrays);
  } catch (error) {
    write({ id: line.id, error: String(error.message) }, []);
  }
}
