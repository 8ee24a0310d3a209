"""config.json with values of another type: what a rule cannot be applied with is told itself."""

from pathlib import Path
from typing import Any

import pytest
from nibblespec.conformance import Finding, validate
from nibblespec.conformance.examples.files import Example, render
from nibblespec.conformance.examples.models import bitnest_example, dashq_example
from nibblespec.conformance.examples.write import write_files


def check(folder: Path, example: Example, values: dict[str, Any]) -> list[Finding]:
    """Validate an example with these values in its config.json."""
    example.documents["config.json"].update(values)
    write_files(folder, render(example))
    return validate(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", "2"),
        ("num_hidden_layers", -1),
        ("hidden_size", "64"),
        ("vocab_size", True),
        ("num_attention_heads", 0),
        ("num_key_value_heads", {}),
        ("head_dim", 0),
        ("intermediate_size", -96),
        ("intermediate_size", 96.5),
        ("tie_word_embeddings", "no"),
        ("tie_word_embeddings", 0),
    ],
)
def test_a_value_of_another_type_is_told_where_it_is(
    tmp_path: Path, key: str, value: object
) -> None:
    (found,) = check(tmp_path, dashq_example(), {key: value})
    assert (found.requirement, found.severity) == ("DQ1-CONFIG-TYPES", "warning")
    assert found.pointer == f"/{key}"


def test_a_value_of_another_type_is_told_in_the_text_configuration(
    tmp_path: Path,
) -> None:
    nested = {"head_dim": "16", "tie_word_embeddings": 1}
    found = check(tmp_path, dashq_example(), {"text_config": nested})
    assert [each.pointer for each in found if each.requirement == "DQ1-CONFIG-TYPES"] == [
        "/text_config/head_dim",
        "/text_config/tie_word_embeddings",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 2.0},
        {"head_dim": None, "num_key_value_heads": [2, 2], "tie_word_embeddings": None},
        {"intermediate_size": [96, 96]},
    ],
)
def test_whole_numbers_null_and_lists_are_taken(tmp_path: Path, values: dict[str, Any]) -> None:
    assert check(tmp_path, dashq_example(), values) == []


@pytest.mark.parametrize(
    ("key", "value", "requirement"),
    [
        ("num_key_value_heads", "2", "BN1-CONFIG-KEYS"),
        ("head_dim", 0, "BN1-CONFIG-KEYS"),
        ("vocab_size", True, "BN1-CONFIG-KEYS"),
        ("tie_word_embeddings", "no", "BN1-CONFIG-UNTIED"),
        ("tie_word_embeddings", 0, "BN1-CONFIG-UNTIED"),
    ],
)
def test_so_is_a_value_of_another_type_in_a_package(
    tmp_path: Path, key: str, value: object, requirement: str
) -> None:
    (found,) = check(tmp_path, bitnest_example(), {key: value})
    assert (found.requirement, found.pointer) == (requirement, f"/{key}")
