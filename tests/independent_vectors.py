"""The second reader of the golden vectors: the standard library alone, exact arithmetic alone.

It shares no code with the reference, the generator or NumPy. It reads the files as
conformance/vectors/README.md describes them and computes every output again by the text of the
specification. Outputs of the exact class have to be equal; the ends of intervals have to be those
of the text, but for 2^-16 of the bound, which pays for the float64 arithmetic that made them.

From the root of the repository: `python -E -S -m tests.independent_vectors FOLDER`
"""

import json
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import isnan
from pathlib import Path
from typing import Any

from tests import independent_bounded as bounded
from tests import independent_exact as exact
from tests.independent_numbers import FLOATS, Tensor, bits_of, read, rounded

SLACK = 1 + Fraction(1, 2**16)

EXACT: dict[str, Callable[[exact.Parameters, exact.Inputs], exact.Exact]] = {
    "pack_words": exact.pack_words,
    "unpack_words": exact.unpack_words,
    "dashq_reconstruct": exact.dashq_reconstruct,
    "pack_planes": exact.pack_planes,
    "unpack_planes": exact.unpack_planes,
    "nested_reconstruct": exact.nested_reconstruct,
    "quantize_activations": exact.quantize_activations,
    "kv_quantize": exact.kv_quantize,
    "kv_dequantize": exact.kv_dequantize,
}

BOUNDED: dict[str, Callable[[exact.Parameters, exact.Inputs], bounded.Bounded]] = {
    "dashq_linear": bounded.dashq_linear,
    "nested_linear": bounded.nested_linear,
    "hadamard": bounded.hadamard,
    "kv_attention": bounded.kv_attention,
}

Case = dict[str, Any]
Tensors = dict[str, Tensor]


def faults(case: Case, inputs: Tensors, expected: Tensors) -> Iterator[str]:
    """Yield what is wrong with a case."""
    given: exact.Inputs = {}
    for name, entry in case["inputs"].items():
        given[name] = None if entry is None else inputs[entry["tensor"]]
        yield from form_faults(name, entry, given[name])
    operation, parameters = case["operation"], case["parameters"]
    if operation in EXACT:
        for name, numbers in EXACT[operation](parameters, given).items():
            output = case["outputs"][name]
            stored = expected[output["bits"]]
            yield from form_faults(name, output, stored)
            yield from exact_faults(name, stored, numbers)
        return
    for name, pairs in BOUNDED[operation](parameters, given).items():
        output = case["outputs"][name]
        low, high = expected[output["low"]], expected[output["high"]]
        yield from form_faults(name, output, low)
        yield from form_faults(name, output, high)
        if (case["class"] == "exact") != all(not bound for _, bound in pairs):
            yield f"{name}: the class is {case['class']}"
        yield from interval_faults(name, low, high, pairs)


def form_faults(name: str, entry: dict[str, Any] | None, tensor: Tensor | None) -> Iterator[str]:
    """Yield where dtype or shape of a tensor is not that of the index."""
    if entry is not None and tensor is not None:
        for key, found in (("dtype", tensor.dtype), ("shape", tensor.shape)):
            if entry[key] != found:
                yield f"{name}: {key} is {found}, expected {entry[key]}"


def exact_faults(name: str, stored: Tensor, numbers: list[Any]) -> Iterator[str]:
    """Yield the elements that differ in a bit."""
    if len(numbers) != len(stored.values):
        yield f"{name}: {len(stored.values)} elements, expected {len(numbers)}"
    for i, (number, found, bits) in enumerate(
        zip(numbers, stored.values, stored.bits, strict=False)
    ):
        if stored.dtype in FLOATS:
            same = bits_of(number, stored.dtype) == (-1 if isnan(found) else bits)
        else:
            same = number == found
        if not same:
            yield f"{name}[{i}]: {found!r}, expected {number!r}"


def interval_faults(
    name: str, low: Tensor, high: Tensor, pairs: list[tuple[Fraction, Fraction]]
) -> Iterator[str]:
    """Yield the elements whose ends are not rn(y − B) and rn(y + B)."""
    if len(pairs) != len(low.values):
        yield f"{name}: {len(low.values)} elements, expected {len(pairs)}"
    for i, (y, bound) in enumerate(pairs[: len(low.values)]):
        found = low.values[i], high.values[i]
        least, greatest = (rounded(y + b, low.dtype) for b in (-bound, bound))
        below, above = (rounded(y + SLACK * b, low.dtype) for b in (-bound, bound))
        if not (below <= found[0] <= least and greatest <= found[1] <= above):
            yield f"{name}[{i}]: {found}, expected {(least, greatest)}"


def main(folder: str) -> int:
    """Check the vectors of a folder; return the exit status."""
    root = Path(folder)
    index = json.loads((root / "index.json").read_text(encoding="utf-8"))
    inputs, expected = read(root / index["inputs"]), read(root / index["expected"])
    wrong = 0
    for case in index["cases"]:
        found = list(faults(case, inputs, expected))
        wrong += bool(found)
        if found:
            print(f"{case['id']}: {found[0]} ({len(found)} faults)")
    print(f"{len(index['cases'])} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
