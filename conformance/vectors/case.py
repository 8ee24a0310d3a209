"""A case: one call of an operation, what it is given and what it has to return."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from nibblespec.conformance.vectors.container import dtype_name
from nibblespec.reference.bounds import Bounded, interval
from nibblespec.spec.operations import Array

Parameter = str | int | float | Mapping[str, str | int]
"""What is no array: a number, a name, or the description of a dashq module."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input. Cases with the same name share it."""

    name: str
    values: Array


@dataclass(frozen=True, slots=True)
class Exact:
    """An output of which every bit counts; any two NaNs are equal."""

    values: Array


@dataclass(frozen=True, slots=True)
class Interval:
    """An output from low to high, compared as numbers: +0 and −0 are equal."""

    low: Array
    high: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call."""

    id: str
    """`operation/name`: never given to another call."""
    shows: str
    """What it is about, in a few words."""
    requirements: tuple[str, ...]
    """What a wrong output breaks, the most specific first."""
    parameters: Mapping[str, Parameter]
    inputs: Mapping[str, Tensor | None]
    """Arguments that are arrays, by name; None where there is none."""
    outputs: Mapping[str, Exact | Interval]


def exact(values: Array) -> Exact:
    """Return an exact output, NaNs in one form: machines differ in those that they make."""
    if values.dtype.kind in "iu":
        return Exact(values)
    quiet = np.array(np.nan).astype(values.dtype)
    return Exact(np.where(np.isnan(values), np.abs(quiet), values).astype(values.dtype))


def value(values: Array) -> Interval:
    """Return an output of which the number counts and the sign of a zero does not."""
    unsigned = _without_minus_zero(values)
    return Interval(unsigned, unsigned)


def between(bounded: Bounded, dtype: str) -> Interval:
    """Return the interval of a bounded result. Raises ValueError where there is no bound."""
    if not (np.isfinite(bounded.error).all() and np.isfinite(bounded.value).all()):
        raise ValueError("an element has no bound: choose inputs that are far from overflow")
    low, high = interval(bounded, dtype)
    if not bounded.error.any():
        return value(low)
    return Interval(_without_minus_zero(low), _without_minus_zero(high))


def operation_of(case_id: str) -> str:
    """Return the operation that a case calls."""
    return case_id.partition("/")[0]


def index_entry(case: Case) -> dict[str, object]:
    """Return a case as the index has it."""
    bounded = any(
        isinstance(output, Interval) and output.low is not output.high
        for output in case.outputs.values()
    )
    return {
        "id": case.id,
        "operation": operation_of(case.id),
        "class": "bounded" if bounded else "exact",
        "shows": case.shows,
        "requirements": list(dict.fromkeys(case.requirements)),
        "parameters": case.parameters,
        "inputs": {
            name: None if tensor is None else {"tensor": tensor.name} | _form(tensor.values)
            for name, tensor in case.inputs.items()
        },
        "outputs": {
            name: _output_entry(f"{case.id}/{name}", output)
            for name, output in case.outputs.items()
        },
    }


def expected_tensors(case: Case) -> dict[str, Array]:
    """Return the tensors of a case's outputs, by the names that its index entry gives them."""
    found: dict[str, Array] = {}
    for name, output in case.outputs.items():
        entry = _output_entry(f"{case.id}/{name}", output)
        if isinstance(output, Exact):
            found[str(entry["bits"])] = output.values
        else:
            found[str(entry["low"])] = output.low
            found[str(entry["high"])] = output.high
    return found


def _output_entry(name: str, output: Exact | Interval) -> dict[str, object]:
    if isinstance(output, Exact):
        return {"tensor": name, **_form(output.values), "bits": name}
    if output.low is output.high:
        return {"tensor": name, **_form(output.low), "low": name, "high": name}
    return {"tensor": name, **_form(output.low), "low": f"{name}.low", "high": f"{name}.high"}


def _form(values: Array) -> dict[str, object]:
    return {"dtype": dtype_name(values), "shape": list(values.shape)}


def _without_minus_zero(values: Array) -> Array:
    return np.where(values == 0, np.zeros((), values.dtype), values).astype(values.dtype)
