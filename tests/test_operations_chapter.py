"""The chapters on operations and on the way through name what there is."""

import ast
import inspect
import re
from dataclasses import MISSING, fields
from importlib.resources import files

import numpy as np
import pytest
from nibblespec.conformance import suite
from nibblespec.reference import backend
from nibblespec.spec import operations
from nibblespec.spec.operations import OPERATIONS, Capabilities

SPEC = files("nibblespec.spec")
CHAPTER = SPEC.joinpath("operations.md").read_text(encoding="utf-8")
INTRODUCTION = SPEC.joinpath("introduction.md").read_text(encoding="utf-8")


def cells(first: str) -> list[str]:
    """Return the cells of the row that begins with a name."""
    [row] = [line for line in CHAPTER.splitlines() if line.startswith(f"| `{first}` |")]
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def protocol_of(operation: str) -> list[str]:
    """Return the names of the arguments of an operation."""
    name = "".join(part.capitalize() for part in operation.split("_"))
    signature = inspect.signature(getattr(operations, name).__call__)
    return list(signature.parameters)[1:]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_table_has_the_arguments_in_their_order(operation: str) -> None:
    listed = re.findall(r"`(\w+)`", re.sub(r"\[[^\]]*\]", "", cells(operation)[1]))
    assert listed == protocol_of(operation)


def test_the_table_has_every_operation_in_the_order_of_the_specification() -> None:
    table = CHAPTER.partition("## 3. The operations")[2].partition("###")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.M)) == OPERATIONS


def test_every_claim_has_a_row_with_its_default() -> None:
    table = CHAPTER.partition("## 2. Capabilities")[2].partition("## 3.")[0]
    names = [field.name for field in fields(Capabilities)]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == names
    for field in fields(Capabilities):
        default = cells(field.name)[2]
        if field.default is MISSING:
            assert default == "(is required)"
        elif isinstance(field.default, tuple):
            assert default == "all"
        elif isinstance(field.default, str):
            assert default == f"`{field.default}`"
        else:
            assert default.split(":")[0].capitalize() == str(field.default)


def test_the_examples_are_calls() -> None:
    kinds = {"pack_words": "uint8", "unpack_words": "int32", "pack_planes": "int8"}
    table = CHAPTER.partition("### 3.1 An example for each")[2]
    rows = re.findall(r"^\| `(\w+)\((.*)\)` \| (.*) \|$", table, re.M)
    assert len(rows) == 6
    for operation, arguments, results in rows:
        given = [
            np.array(value, kinds.get(operation, "float32")) if isinstance(value, list) else value
            for value in ast.literal_eval(f"({arguments},)")
        ]
        found = getattr(backend, operation)(*given)
        parts = found if isinstance(found, tuple) else (found,)
        listed = [ast.literal_eval(one) for one in re.findall(r"`([^`]*)`", results)]
        assert [part.tolist() for part in parts] == listed


def test_the_steps_of_the_way_through_choose_tests_of_the_suite() -> None:
    modules = [path.name for path in files(suite).iterdir() if path.name.startswith("test_")]
    chosen = re.findall(r"`-k (\w+)`", INTRODUCTION)
    assert len(chosen) == 11
    assert all(any(word in module for module in modules) for word in chosen)
