"""The JSON Schemas say what the models say, and can be used alone."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from nibblespec.schemas import generate, load_schema, schema_text
from nibblespec.spec.formats import FORMATS, Format
from pydantic import ValidationError

EXAMPLES = Path(__file__).parent.parent / "examples"
DASHQ, BITNEST = FORMATS
VALIDATORS = {known.id: Draft202012Validator(load_schema(known.id)) for known in FORMATS}
WHOLE = {
    known.id: json.loads((EXAMPLES / known.manifest_name).read_text(encoding="utf-8"))
    for known in FORMATS
}
MAPS = {
    "dashq-packed-linear": (("quantized_modules",),),
    "bitnest-package-v1": (
        ("layers",),
        ("activation", "per_layer_group"),
        ("online_hadamard", "layers"),
    ),
}

Place = tuple[str | int, ...]
Json: TypeAlias = Any  # a JSON value, of the type that the test gives it


def at(value: Json, path: Place) -> Json:
    """Return what a path leads to."""
    for part in path:
        value = value[part]
    return value


def reduced(format_id: str) -> dict[str, Json]:
    """Return the format's example with two entries left in each map of modules."""
    manifest: dict[str, Json] = copy.deepcopy(WHOLE[format_id])
    for path in MAPS[format_id]:
        entries = at(manifest, path)
        for name in list(entries)[2:]:
            del entries[name]
    return manifest


SMALL = {known.id: reduced(known.id) for known in FORMATS}


def changed(format_id: str, path: Place, value: object) -> dict[str, Json]:
    """Return the reduced example with another value at a path."""
    manifest = copy.deepcopy(SMALL[format_id])
    at(manifest, path[:-1])[path[-1]] = value
    return manifest


def fields_of_schema(known: Format, value: object) -> set[Place]:
    """Return the fields that the JSON Schema finds fault with (missing ones by their own path)."""
    fields: set[Place] = set()
    for error in VALIDATORS[known.id].iter_errors(value):
        path = tuple(error.absolute_path)
        if error.validator == "required":
            fields |= {(*path, key) for key in error.validator_value if key not in error.instance}
        else:
            fields.add(path)
    return without_indices(fields)


def fields_of_model(known: Format, value: object) -> set[Place]:
    """Return the fields that the model finds fault with."""
    try:
        known.model.model_validate(value)
    except ValidationError as error:
        return without_indices(
            {
                details["loc"]
                for details in error.errors(include_url=False, include_context=False)
                if details["type"] != "default_factory_not_called"
            }
        )
    return set()


def without_indices(paths: set[Place]) -> set[Place]:
    """Reduce places in arrays to the array: how long lists are reported differs."""
    return {tuple(part for part in path if isinstance(part, str)) for path in paths}


def parts_of_schema(schema: object, path: Place = ()) -> Iterator[tuple[Place, dict[str, Json]]]:
    """Yield every object of a schema that is a schema itself, with its place."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in ("properties", "$defs"):
        for name, inner in schema.get(key, {}).items():
            yield from parts_of_schema(inner, (*path, key, name))
    for key in ("items", "additionalProperties"):
        yield from parts_of_schema(schema.get(key), (*path, key))
    for index, inner in enumerate(schema.get("anyOf", ())):
        yield from parts_of_schema(inner, (*path, "anyOf", index))


each_format = pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.id)


@each_format
def test_committed_schema_is_what_the_model_generates(known: Format) -> None:
    assert schema_text(known.id) == generate.text(known), (
        "run python -m nibblespec.schemas.generate and commit the result"
    )


def test_check_reports_a_stale_schema_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "HERE", tmp_path)
    assert generate.main(["--check"]) == 1
    assert DASHQ.schema_name in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_generate_writes_what_check_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "HERE", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert (tmp_path / BITNEST.schema_name).read_bytes() == schema_text(BITNEST.id).encode()


@each_format
def test_schema_is_valid_against_its_metaschema(known: Format) -> None:
    schema = load_schema(known.id)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


def test_each_schema_names_itself_and_its_version() -> None:
    ids = [load_schema(known.id)["$id"] for known in FORMATS]
    assert ids == [
        "urn:nibblespec:schema:dashq-packed-linear:1",
        "urn:nibblespec:schema:bitnest-package:1",
    ]
    assert all("version 1" in str(load_schema(known.id)["title"]) for known in FORMATS)


@each_format
def test_schema_uses_only_keywords_that_all_validators_agree_on(known: Format) -> None:
    keywords = {key for _, part in parts_of_schema(load_schema(known.id)) for key in part}
    assert keywords <= {
        "$schema", "$id", "$comment", "$defs", "$ref", "title", "description", "examples",
        "default", "type", "const", "enum", "anyOf", "minimum", "maximum", "minItems", "maxItems",
        "items", "properties", "required", "additionalProperties",
    }  # fmt: skip


@each_format
def test_schema_allows_unknown_keys_everywhere(known: Format) -> None:
    for path, part in parts_of_schema(load_schema(known.id)):
        assert part.get("additionalProperties") is not False, path


@each_format
def test_schema_gives_no_default_that_it_refuses(known: Format) -> None:
    schema = load_schema(known.id)
    for path, part in parts_of_schema(schema):
        if "default" in part:
            assert part["default"] is not None, path
            assert Draft202012Validator(part).is_valid(part["default"]), path


@each_format
def test_every_property_is_described(known: Format) -> None:
    for path, part in parts_of_schema(load_schema(known.id)):
        if "properties" in path[-2:-1]:
            assert part.get("description"), path


@each_format
def test_every_example_of_the_schema_is_valid(known: Format) -> None:
    schema = load_schema(known.id)
    examples = 0
    for path, part in parts_of_schema(schema):
        for value in part.get("examples", ()):
            validator = Draft202012Validator(part | {"$defs": schema["$defs"]})
            assert validator.is_valid(value), path
            examples += 1
    assert examples > 5


@each_format
def test_published_manifest_is_valid_by_schema_and_model(known: Format) -> None:
    assert fields_of_schema(known, WHOLE[known.id]) == set()
    assert fields_of_model(known, WHOLE[known.id]) == set()


def test_unknown_format_has_no_schema() -> None:
    with pytest.raises(ValueError, match="expected one of dashq-packed-linear, bitnest-package-v1"):
        load_schema("gptq")


def test_loaded_schema_can_be_changed_without_harm() -> None:
    load_schema(DASHQ.id).clear()
    assert load_schema(DASHQ.id)["type"] == "object"


MODULE = ("quantized_modules", "model.language_model.layers.0.linear_attn.in_proj_a")
LAYER = ("layers", "model.layers.0.self_attn.q_proj")


@pytest.mark.parametrize(
    ("format_id", "path", "value", "valid"),
    [
        (DASHQ.id, ("format_version",), 1.0, True),
        (DASHQ.id, ("format_version",), True, False),
        (DASHQ.id, ("format_version",), "1", False),
        (DASHQ.id, ("format_version",), 2, False),
        (DASHQ.id, ("format",), "dashq-packed-linear\n", False),
        (DASHQ.id, ("model_class",), None, False),
        (DASHQ.id, ("params",), None, False),
        (DASHQ.id, ("params", "bits"), 4.0, True),
        (DASHQ.id, ("params", "bits"), -(10**300), True),
        (DASHQ.id, ("params", "symmetric"), 0, False),
        (DASHQ.id, ("params", "any other key"), [None], True),
        (DASHQ.id, ("results",), [], False),
        (DASHQ.id, ("quantized_modules",), {}, True),
        (DASHQ.id, ("quantized_modules",), [], False),
        (DASHQ.id, ("quantized_modules", ""), {}, False),
        (DASHQ.id, (*MODULE, "nbits"), 4.0, True),
        (DASHQ.id, (*MODULE, "nbits"), 4.5, False),
        (DASHQ.id, (*MODULE, "nbits"), 8.0, True),
        (DASHQ.id, (*MODULE, "nbits"), 9, False),
        (DASHQ.id, (*MODULE, "nbits"), 0, False),
        (DASHQ.id, (*MODULE, "nbits"), True, False),
        (DASHQ.id, (*MODULE, "nbits"), "4", False),
        (DASHQ.id, (*MODULE, "num_groups"), 1e300, True),
        (DASHQ.id, (*MODULE, "num_groups"), 2**64, True),
        (DASHQ.id, (*MODULE, "num_groups"), -0.0, False),
        (DASHQ.id, (*MODULE, "quant_in_features"), None, False),
        (DASHQ.id, (*MODULE, "packing"), "", True),
        (DASHQ.id, (*MODULE, "runtime_backend"), None, False),
        (BITNEST.id, ("rotation",), None, True),
        (BITNEST.id, ("arch",), "mistral", False),
        (BITNEST.id, ("arch",), ["llama"], False),
        (BITNEST.id, ("kv",), None, False),
        (BITNEST.id, ("rope", "theta"), None, True),
        (BITNEST.id, ("rope", "theta"), 500000, True),
        (BITNEST.id, ("rope", "theta"), 10**300, True),
        (BITNEST.id, ("rope", "theta"), False, False),
        (BITNEST.id, ("rope", "scaling"), None, True),
        (BITNEST.id, ("rope", "scaling"), [], False),
        (BITNEST.id, ("rope", "max_position_embeddings"), None, False),
        (BITNEST.id, ("activation", "per_layer_group", "m"), -1.0, True),
        (BITNEST.id, ("activation", "per_layer_group", "m"), None, False),
        (BITNEST.id, (*LAYER, "shape"), [8, 8.0], True),
        (BITNEST.id, (*LAYER, "shape"), [8], False),
        (BITNEST.id, (*LAYER, "shape"), [8, 8, 8], False),
        (BITNEST.id, (*LAYER, "shape"), [8, True], False),
        (BITNEST.id, (*LAYER, "shape"), {"0": 8, "1": 8}, False),
        (BITNEST.id, (*LAYER, "has_bias"), 0, False),
    ],
)
def test_schema_and_model_judge_a_value_alike(
    format_id: str, path: Place, value: object, valid: bool
) -> None:
    known = DASHQ if format_id == DASHQ.id else BITNEST
    manifest = changed(format_id, path, value)
    assert VALIDATORS[format_id].is_valid(manifest) == valid
    assert (not fields_of_model(known, manifest)) == valid


@pytest.mark.parametrize("value", [None, True, 4, "dashq-packed-linear", [], [{}], {}])
@each_format
def test_schema_and_model_refuse_what_is_no_manifest(known: Format, value: object) -> None:
    assert fields_of_schema(known, value)
    assert fields_of_schema(known, value) == fields_of_model(known, value)


CONSTANTS = st.sampled_from(
    [None, True, False, -1, 0, 1, 2, 4, 8, 9, 128, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**30,
     10**308, 0.0, -0.0, 1.0, 4.0, 8.0, 9.0, -1.0, 0.5, 1.5, 2.0**53, 1e22, 1e300, "", "1", "4",
     "true", "llama", "qwen2", "qwen2\n", "causal_lm", "unsigned+8", "float16",
     "dashq-packed-linear", "bitnest-package-v1", "\u0000", "é"]
)  # fmt: skip
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = CONSTANTS | FLOATS | st.integers(-10, 300) | st.text(max_size=3)
KEYS = st.sampled_from(
    ["format", "format_version", "params", "nbits", "in_features", "quant_in_features", "shape",
     "groups", "has_bias", "K", "fp32", "layers", "note", "theta", "scaling", "results", "arch",
     "rotation", "model_class", "", "a.b", "a/b", "~"]
) | st.text(max_size=3)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)


def draw_place(draw: st.DrawFn, manifest: Json) -> Place | None:
    """Draw the path of a value inside a manifest, as likely a shallow as a deep one."""
    place: Place = ()
    while (keys := keys_of(at(manifest, place))) and (not place or draw(st.booleans())):
        place = (*place, draw(st.sampled_from(keys)))
    return place or None


def keys_of(value: Json) -> list[str | int]:
    """Return the keys of an object, the indices of an array, nothing of anything else."""
    if isinstance(value, list):
        return list(range(len(value)))
    return list(value) if isinstance(value, dict) else []


MUTATIONS = ["vary"] * 4 + ["replace"] * 2 + ["delete", "add", "copy", "rename", "swap"]


def mutate(draw: st.DrawFn, manifest: Json) -> None:
    """Change one place of a manifest."""
    place, other = draw_place(draw, manifest), draw_place(draw, manifest)
    if place is None or other is None:
        return
    parent, key = at(manifest, place[:-1]), place[-1]
    there, other_key = at(manifest, other[:-1]), other[-1]
    match draw(st.sampled_from(MUTATIONS)):
        case "replace":
            parent[key] = draw(VALUES)
        case "vary" if isinstance(parent[key], int | float) and abs(parent[key]) < 2**60:
            number = parent[key]
            parent[key] = draw(
                st.sampled_from([float(number), str(number), bool(number), -number, number + 0.5])
            )
        case "vary":
            parent[key] = draw(st.sampled_from([None, [parent[key]], {"": parent[key]}]))
        case "delete":
            del parent[key]
        case "add" if isinstance(parent, list):
            parent.insert(int(key), draw(VALUES))
        case "add":
            parent[draw(KEYS)] = draw(VALUES)
        case "copy":
            there[other_key] = copy.deepcopy(parent[key])
        case "rename" if isinstance(parent, dict):
            parent[draw(KEYS)] = parent.pop(key)
        case _ if len(place) == len(other):  # so that neither lies inside the other
            parent[key], there[other_key] = there[other_key], parent[key]


@st.composite
def mutants(draw: st.DrawFn) -> tuple[Format, Json]:
    """Draw a published manifest, nearly always with few modules, after one to four mutations."""
    known = draw(st.sampled_from(FORMATS))
    whole = draw(st.integers(0, 99)) == 99
    manifest = copy.deepcopy((WHOLE if whole else SMALL)[known.id])
    for _ in range(draw(st.integers(1, 4))):
        mutate(draw, manifest)
    return known, manifest


@settings(max_examples=2000, deadline=None)
@given(mutants())
@example((DASHQ, SMALL[DASHQ.id]))
@example((BITNEST, SMALL[BITNEST.id]))
def test_schema_and_model_find_the_same_fields_of_mutated_manifests(
    mutant: tuple[Format, Json],
) -> None:
    known, manifest = mutant
    assert VALIDATORS[known.id].is_valid(manifest) == (not fields_of_model(known, manifest))
    assert fields_of_schema(known, manifest) == fields_of_model(known, manifest)
