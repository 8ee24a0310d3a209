"""The golden vectors as they are installed: the index, typed, and the expected tensors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from nibblespec.conformance.vectors.container import decode
from nibblespec.spec.operations import Array

INDEX, INPUTS, EXPECTED, README = (
    "index.json",
    "inputs.safetensors",
    "expected.safetensors",
    "README.md",
)
"""Files of a set of vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output of a case: what a program has to write, and what it is compared with."""

    tensor: str
    dtype: str
    """Its name in a safetensors header."""
    shape: tuple[int, ...]
    bits: str | None
    """Expected tensor of which every bit counts, or None."""
    low: str | None
    high: str | None
    """Expected tensors between which every element is, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    """What a check needs to know of a case."""

    id: str
    operation: str
    shows: str
    requirements: tuple[str, ...]
    outputs: tuple[Output, ...]


def golden_file(name: str) -> bytes:
    """Return one of the files of the set."""
    folder = files("nibblespec.conformance.vectors")
    return (folder if name == README else folder.joinpath("golden")).joinpath(name).read_bytes()


@cache
def golden_cases() -> tuple[GoldenCase, ...]:
    """Return every case of the index, in its order."""
    return tuple(
        GoldenCase(
            id=case["id"],
            operation=case["operation"],
            shows=case["shows"],
            requirements=tuple(case["requirements"]),
            outputs=tuple(
                Output(
                    tensor=output["tensor"],
                    dtype=output["dtype"],
                    shape=tuple(output["shape"]),
                    bits=output.get("bits"),
                    low=output.get("low"),
                    high=output.get("high"),
                )
                for output in case["outputs"].values()
            ),
        )
        for case in json.loads(golden_file(INDEX))["cases"]
    )


@cache
def expected_tensors() -> Mapping[str, Array]:
    """Return the expected tensors by name."""
    return decode(golden_file(EXPECTED))
