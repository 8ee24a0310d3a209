"""Cases that are no sound JSON document, or no manifest of any known format."""

import json

from nibblespec.schemas.corpus.cases import Case, case, put
from nibblespec.schemas.corpus.dashq import FULL, PLAIN

TEXT = json.dumps(PLAIN)
BYTES = TEXT.encode()


def with_results(text: str) -> bytes:
    """Write a manifest with a text, JSON or not, in the place of one result."""
    written = json.dumps(put(PLAIN, {"PPL": "HERE"}, "results"))
    return written.replace('"HERE"', text).encode()


# One case reads better on two lines than on seven.
# fmt: off

def documents() -> list[Case]:
    """Return the cases on JSON itself, and on what is no manifest."""
    at = "/results/PPL"
    deep = "[" * 62 + "]" * 62
    return [
        case("white-space", "White space around and inside.",
             b"\n\t " + json.dumps(FULL, indent=2).encode() + b"\r\n"),
        case("exponents", "4e0 is the integer 4.",
             TEXT.replace('"nbits": 4', '"nbits": 40e-1').encode()),
        case("depth-64", "As deep as it may be.", with_results(deep)),
        case("largest-number", "The largest number.", with_results("1.7976931348623157e308")),
        case("surrogate-pair", "One character in two escapes.", with_results('"\\ud83d\\ude00"')),
        case("empty", "Nothing at all.", b"", "JSON-SYNTAX "),
        case("truncated", "The end is missing.", BYTES[:-1], "JSON-SYNTAX /quantized_modules"),
        case("trailing-data", "Something follows.", BYTES + b"{}", "JSON-SYNTAX "),
        case("trailing-comma", "A comma too many.", TEXT[:-1].encode() + b",}", "JSON-SYNTAX "),
        case("single-quotes", "Python, not JSON.", str(PLAIN).encode(), "JSON-SYNTAX "),
        case("leading-zero", "01 is no number.", with_results("01"), f"JSON-SYNTAX {at}"),
        case("byte-order-mark", "A mark in front.", b"\xef\xbb\xbf" + BYTES, "JSON-ENCODING "),
        case("utf-16", "Another encoding.", TEXT.encode("utf-16"), "JSON-ENCODING "),
        case("latin-1", "A byte that is no UTF-8.", with_results('"x"').replace(b"x", b"\xe9"),
             "JSON-ENCODING "),
        case("duplicate-key", "Two formats.", b'{"format": "dashq-packed-linear", ' + BYTES[1:],
             "JSON-DUPLICATE-KEY /format"),
        case("duplicate-key-escaped", "The same key in escapes.",
             with_results('1, "\\u0050PL": 2'), f"JSON-DUPLICATE-KEY {at}"),
        case("nan", "As Python writes it.", with_results("NaN"), f"JSON-NONFINITE {at}"),
        case("minus-infinity", "The same.", with_results("-Infinity"), f"JSON-NONFINITE {at}"),
        case("number-too-large", "Beyond float64.", with_results("1e309"),
             f"JSON-NUMBER-RANGE {at}"),
        case("integer-of-thousands-of-digits", "Beyond float64.", with_results("9" * 5000),
             f"JSON-NUMBER-RANGE {at}"),
        case("integer-inexact", "2^53 is where readers begin to differ.", with_results(str(2**53)),
             f"JSON-INTEGER-EXACT {at}"),
        case("lone-surrogate", "Half of a character.", with_results('"\\ud83d"'),
             f"JSON-SURROGATES {at}"),
        case("depth-65", "One level too deep.", with_results(f"[{deep}]"),
             f"JSON-DEPTH {at}" + "/0" * 62),
        case("null", "JSON, but no object.", b"null", "JSON-MANIFEST-FORMAT "),
        case("array", "A manifest in an array.", b"[" + BYTES + b"]", "JSON-MANIFEST-FORMAT "),
        case("empty-object", "No key at all.", b"{}", "JSON-MANIFEST-FORMAT "),
        case("other-format", "A manifest of something else.", {"format": "gguf", "version": 3},
             "JSON-MANIFEST-FORMAT /format"),
    ]
