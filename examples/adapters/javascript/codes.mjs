// Codes of both formats in plain JavaScript: packed words, planes, reconstruction, A8 and KV codes.
//
// No input or output here, so that a page can use it as well as the adapter beside it. JavaScript
// computes in float64. One operation on float32 numbers, rounded by Math.fround, is the float32
// operation: float64 has more than twice its digits, so that rounding twice changes nothing.

const f = Math.fround;
const TINY = f(1e-8);

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

// Round to the nearest integer, ties to even, for magnitudes up to 2 ** 51: the sum rounds.
const MAGIC = 1.5 * 2 ** 52;
const rint = (x) => x + MAGIC - MAGIC;
const clip = (x, low, high) => Math.min(Math.max(x, low), high);

// ---- numbers of 8 and 16 bits ----

function fromFloat16(h) {
  const sign = h & 0x8000 ? -1 : 1;
  const exponent = (h >> 10) & 31;
  const fraction = h & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

function fromBfloat16(h) {
  bits[0] = h << 16;
  return float[0];
}

function fromFloat8e4m3fn(b) {
  const sign = b & 0x80 ? -1 : 1;
  const exponent = (b >> 3) & 15;
  const fraction = b & 7;
  if ((b & 0x7f) === 0x7f) return NaN;
  return sign * (exponent ? (8 + fraction) * 2 ** (exponent - 10) : fraction * 2 ** -9);
}

function toFloat16(x) {
  float[0] = x;
  const sign = (bits[0] >>> 16) & 0x8000;
  const magnitude = bits[0] & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00; // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and more is infinity
  if (magnitude < 0x38800000) return sign | rint(Math.abs(x) * 2 ** 24); // subnormal
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}

function toBfloat16(x) {
  float[0] = x;
  const b = bits[0];
  if ((b & 0x7fffffff) > 0x7f800000) return (b >>> 16) | 0x40; // NaN stays one
  return (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;
}

// Read the elements of a dtype, little-endian, as numbers.
export function readFloats(dtype, bytes) {
  const copy = bytes.slice(); // typed arrays begin at multiples of their element
  if (dtype === "float32") return new Float32Array(copy.buffer);
  if (dtype === "float16") return Float32Array.from(new Uint16Array(copy.buffer), fromFloat16);
  if (dtype === "bfloat16") return Float32Array.from(new Uint16Array(copy.buffer), fromBfloat16);
  if (dtype === "float8_e4m3fn") return Float32Array.from(copy, fromFloat8e4m3fn);
  if (dtype === "float8_e5m2") return Float32Array.from(copy, (b) => fromFloat16(b << 8));
  throw new Error(`${dtype} is no dtype of floating-point numbers`);
}

// Round float32 numbers to a dtype and return the bytes.
export function writeFloats(dtype, values) {
  if (dtype === "float32") return new Uint8Array(values.buffer);
  if (dtype === "float16") return new Uint8Array(Uint16Array.from(values, toFloat16).buffer);
  if (dtype === "bfloat16") return new Uint8Array(Uint16Array.from(values, toBfloat16).buffer);
  throw new Error(`results are no ${dtype}`);
}

// ---- dashq ----

// Pack codes [n] into unsigned words [ceil(n / P)], P = floor(32 / nbits), the first lowest.
export function packWords(codes, nbits) {
  const perWord = Math.floor(32 / nbits);
  const words = new Uint32Array(Math.ceil(codes.length / perWord));
  for (let i = 0; i < codes.length; i++) {
    words[Math.floor(i / perWord)] |= codes[i] << (nbits * (i % perWord));
  }
  return words;
}

// Unpack the first `count` codes of unsigned words.
export function unpackWords(words, nbits, count) {
  const perWord = Math.floor(32 / nbits);
  const mask = 2 ** nbits - 1;
  const codes = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    codes[i] = (words[Math.floor(i / perWord)] >>> (nbits * (i % perWord))) & mask;
  }
  return codes;
}

// Return the weight [N, K] of a module, float32, in the evaluation `fused`.
export function dashqReconstruct(words, scale, zero, module) {
  const { out_features: rows, in_features: columns, group_size: group } = module;
  const stored = module.quant_in_features;
  const codes = unpackWords(words, module.nbits, rows * stored);
  const weight = new Float32Array(rows * columns);
  for (let n = 0; n < rows; n++) {
    for (let k = 0; k < columns; k++) {
      const g = n * (stored / group) + Math.floor(k / group);
      weight[n * columns + k] = f(f(codes[n * stored + k] - zero[g]) * scale[g]);
    }
  }
  return weight;
}

// ---- bitnest ----

// Pack signed nibbles into bytes, even columns in the low four bits, as excess-8.
export function packPlane(codes) {
  const plane = new Uint8Array(codes.length / 2);
  for (let j = 0; j < plane.length; j++) {
    plane[j] = (codes[2 * j] + 8) | ((codes[2 * j + 1] + 8) << 4);
  }
  return plane;
}

export function unpackPlane(plane) {
  const codes = new Int8Array(2 * plane.length);
  for (let j = 0; j < plane.length; j++) {
    codes[2 * j] = (plane[j] & 15) - 8;
    codes[2 * j + 1] = (plane[j] >> 4) - 8;
  }
  return codes;
}

// Return codes times scales, float32, each scale for a run of equally many codes. `lo` is null for
// the draft. A row of a KV cache is such a run, and so is a group of a weight's row.
export function nestedReconstruct(hi, lo, scale) {
  const high = unpackPlane(hi);
  const low = lo && unpackPlane(lo);
  const width = high.length / scale.length;
  const values = new Float32Array(high.length);
  for (let i = 0; i < values.length; i++) {
    const s = scale[Math.floor(i / width)];
    values[i] = low ? (16 * high[i] + low[i]) * f(s / 16) : high[i] * s;
  }
  return values;
}

function largest(values) {
  let found = 0;
  for (const value of values) found = Math.max(found, Math.abs(value));
  return found;
}

// Quantize float32 numbers to eight bits, each run of `width` with a scale of its own.
export function quantizeActivations(x, width) {
  const codes = new Int8Array(x.length);
  const scales = new Float32Array(x.length / width);
  for (let g = 0; g < scales.length; g++) {
    const scale = Math.max(f(largest(x.subarray(g * width, (g + 1) * width)) / 127), TINY);
    for (let i = g * width; i < (g + 1) * width; i++) {
      codes[i] = clip(rint(f(x[i] / scale)), -128, 127);
    }
    scales[g] = scale;
  }
  return { codes, scales };
}

// Quantize float32 keys or values [..., H, L, D] to two planes and a scale per token and head.
// offset is [H, D] or null.
export function kvQuantize(x, offset, [heads, tokens, width]) {
  const high = new Int8Array(x.length);
  const low = new Int8Array(x.length);
  const scales = new Float32Array(x.length / width);
  for (let row = 0; row < scales.length; row++) {
    const head = Math.floor(row / tokens) % heads;
    const start = row * width;
    const d = x.slice(start, start + width);
    if (offset) d.forEach((value, i) => (d[i] = value - offset[head * width + i]));
    const scale = Math.max(f(largest(d) / 7), TINY);
    for (let i = 0; i < width; i++) {
      const q4 = clip(rint(f(d[i] / scale)), -8, 7);
      const rest = f(d[i] - f(q4 * scale));
      high[start + i] = q4;
      low[start + i] = clip(rint(f(rest / f(scale / 16))), q4 === -8 ? 0 : -8, 7);
    }
    scales[row] = scale;
  }
  return { hi: packPlane(high), lo: packPlane(low), scales };
}
