// What a manifest breaks of its JSON Schema, as findings under requirement ids.
//
// This is the part of `nibblespec validate` that a JSON Schema can decide. It is no more than
// that: the rest needs the command line, and the page says so.

import { formats } from "./formats.js";
import { Validator } from "./cfworker-json-schema/index.js";

const MAX_BYTES = 2 ** 27; // JSON-SIZE
const BATCH = 4096; // entries that are validated at a time: the validator holds all their errors
const ENOUGH = 10000; // findings after which no more are looked for
const LONGEST_KEY = 500; // characters of a key in a pointer
const WRAPPERS = new Set(["$ref", "properties", "additionalProperties", "items", "anyOf"]);

/** Check the bytes of a manifest: its format, or null, what was found, and whether that is all. */
export function check(bytes) {
  if (bytes.byteLength > MAX_BYTES) {
    return unread("JSON-SIZE", `at most ${MAX_BYTES} bytes`, `${bytes.byteLength} bytes`);
  }
  const findings = [];
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return unread("JSON-ENCODING", "UTF-8", "bytes that are no UTF-8");
  }
  if (text.startsWith("\uFEFF")) {
    findings.push(finding("JSON-ENCODING", "", "no byte order mark", "one"));
    text = text.slice(1);
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return unread("JSON-SYNTAX", "a JSON document", error.message, findings);
  }
  const format = formats.find((known) => isObject(value) && value.format === known.id) ?? guess(value);
  if (format === undefined) {
    const names = formats.map((known) => JSON.stringify(known.id)).join(" or ");
    const found = isObject(value) ? show(value.format) : show(value);
    findings.push(finding("JSON-MANIFEST-FORMAT", "", `the key "format" with ${names}`, found));
    return { format: null, findings, complete: true };
  }
  try {
    const found = structure(value, format);
    findings.push(...found.slice(0, ENOUGH));
    return { format: format.id, findings, complete: found.length < ENOUGH };
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    findings.push(finding("JSON-SURROGATES", "", "whole characters", "half of a surrogate pair in a key"));
    return { format: format.id, findings, complete: true };
  }
}

function unread(requirement, expected, found, before = []) {
  const findings = [...before, finding(requirement, "", expected, found)];
  return { format: null, findings, complete: true };
}

function finding(requirement, pointer, expected, found) {
  return { requirement, pointer, expected, found };
}

/** Tell the format of a manifest that does not name one by a key that only it has. */
function guess(value) {
  if (!isObject(value)) return undefined;
  const telling = formats.filter((known) => Object.hasOwn(value, known.telling));
  return telling.length === 1 ? telling[0] : undefined;
}

/** Validate a manifest part by part, and say each thing once. */
function structure(value, format) {
  const validator = new Validator(format.schema, "2020-12", false);
  const found = new Map();
  for (const piece of pieces(value, format.named)) {
    for (const one of findingsOf(validator.validate(piece).errors, value, format)) {
      found.set(`${one.requirement} ${one.pointer} ${one.expected}`, one);
    }
    if (found.size >= ENOUGH) break;
  }
  return [...found.values()];
}

/** Turn the validator's errors into findings, one for each place and statement. */
function findingsOf(errors, value, format) {
  const places = new Map();
  for (const error of errors) {
    if (WRAPPERS.has(error.keyword)) continue;
    if (!places.has(error.instanceLocation)) places.set(error.instanceLocation, []);
    places.get(error.instanceLocation).push(error);
  }
  const findings = [];
  for (const [location, all] of places) {
    const path = keysOf(location);
    const pointer = pointerOf(path);
    const missing = all.filter((error) => error.keyword === "required");
    for (const error of missing) {
      const key = error.error.slice(error.error.indexOf('"') + 1, error.error.lastIndexOf('"'));
      findings.push(
        finding(`${format.prefix}-FIELD-REQUIRED`, pointer, `the key "${key}"`, "an object without it"),
      );
    }
    const others = all.filter((error) => error.keyword !== "required");
    if (others.length === 0) continue;
    const expected = [...new Set(others.map((error) => wanted(error, format.schema)))];
    const typed = others.every((error) => error.keyword === "type");
    findings.push(
      finding(statement(format, path, typed), pointer, expected.join(" or "), show(at(value, path))),
    );
  }
  return findings;
}

/** Name the statement that a wrong value breaks. */
function statement(format, path, typed) {
  const own = path.length === 1 ? `${format.prefix}-${path[0].toUpperCase().replaceAll("_", "-")}` : "";
  return format.own.includes(own) ? own : `${format.prefix}-FIELD-${typed ? "TYPE" : "VALUE"}`;
}

/** Say what the schema wants at the place of an error. */
function wanted(error, schema) {
  const value = followed(schema, keysOf(error.keywordLocation));
  const said = {
    type: () => `${/^[aeiou]/.test(value) ? "an" : "a"} ${value}`,
    const: () => JSON.stringify(value),
    enum: () => value.map((one) => JSON.stringify(one)).join(" or "),
    minimum: () => `at least ${value}`,
    maximum: () => `at most ${value}`,
    minItems: () => `at least ${value} values`,
    maxItems: () => `at most ${value} values`,
  };
  return (said[error.keyword] ?? (() => error.error))();
}

/** Follow a keyword's path through a schema and the references in it. */
function followed(schema, path) {
  let at = schema;
  for (const key of path) {
    at = key === "$ref" ? schema.$defs[at.$ref.slice("#/$defs/".length)] : at[key];
  }
  return at;
}

/** Yield the value with a part of each of its large objects at a time, all of them in the end. */
function* pieces(value, named) {
  const entries = named.map((path) => {
    const inner = at(value, path);
    return isObject(inner) ? Object.entries(inner) : [];
  });
  const longest = Math.max(...entries.map((each) => each.length));
  if (longest <= BATCH) {
    yield value;
    return;
  }
  for (let start = 0; start < longest; start += BATCH) {
    let piece = value;
    named.forEach((path, number) => {
      const part = Object.fromEntries(entries[number].slice(start, start + BATCH));
      piece = replaced(piece, path, part);
    });
    yield piece;
  }
}

/** Copy a value with another object at a path, if there is one. */
function replaced(value, path, part) {
  if (path.length === 0) return isObject(value) ? part : value;
  const [key, ...rest] = path;
  if (!isObject(value) || !Object.hasOwn(value, key)) return value;
  return { ...value, [key]: replaced(value[key], rest, part) };
}

function at(value, path) {
  for (const key of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}

function keysOf(location) {
  return location
    .split("/")
    .slice(1)
    .map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));
}

function pointerOf(path) {
  return path
    .map((key) => (key.length > LONGEST_KEY ? `${key.slice(0, LONGEST_KEY)}…` : key))
    .map((key) => `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`)
    .join("");
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Show a value in a few characters. */
function show(value) {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (isObject(value)) return "an object";
  if (typeof value === "number") return String(value);
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
