"""Index, folder and headers: each way in which two of them differ, and none in which they agree."""

from collections.abc import Mapping

import pytest
from nibblespec.conformance.artifacts.findings import Finding, apply_rules
from nibblespec.conformance.artifacts.reading.folder import INDEX
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header
from nibblespec.conformance.artifacts.reading.shards import SHARD_RULES, Shards, is_plain_name, join
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry

A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SOUND = {A: ("x", "y"), B: ("z",)}
MAP = {"x": A, "y": A, "z": B}


def header(file: str, names: tuple[str, ...], broken: tuple[str, ...] = ()) -> Header:
    """Return the header of a file of one-byte tensors."""
    tensors = {
        name: TensorEntry(name=name, dtype="U8", shape=(1,), begin=i, end=i + 1)
        for i, name in enumerate(names)
    }
    return Header(
        file=file,
        size=8 + len(names),
        data_start=8,
        tensors=tensors,
        broken=frozenset(broken),
        metadata={},
    )


def shards(
    files: Mapping[str, tuple[str, ...]] = SOUND,
    weight_map: object = MAP,
    *,
    unread: tuple[str, ...] = (),
    **index: object,
) -> Shards:
    """Put files and an index together; `unread` files are there and have no header."""
    headers = {file: header(file, names) for file, names in files.items()}
    return join(
        tuple(sorted((*files, *unread))),
        headers,
        {"weight_map": weight_map, **index},
        has_index=True,
    )


def without_index(*files: str) -> Shards:
    return join(
        tuple(files), {file: header(file, (file,)) for file in files}, None, has_index=False
    )


def check(subject: Shards) -> list[Finding]:
    return list(apply_rules(SHARD_RULES, subject, INDEX))


def broken(subject: Shards) -> list[str]:
    return [found.requirement for found in check(subject)]


def test_what_agrees_breaks_nothing() -> None:
    assert broken(shards(metadata={"total_size": 3})) == []


def test_one_file_needs_no_index() -> None:
    assert broken(without_index("model.safetensors")) == []


@pytest.mark.parametrize("files", [(), (A, B), ("weights.safetensors",), (A,)])
def test_anything_else_does(files: tuple[str, ...]) -> None:
    assert broken(without_index(*files)) == ["ST-INDEX-REQUIRED"]


def test_an_index_that_is_no_object_is_not_judged_further() -> None:
    assert broken(join((A, B), {}, None, has_index=True)) == []


@pytest.mark.parametrize("weight_map", [None, [], "x", 1])
def test_a_weight_map_that_is_no_object_is_one_fault(weight_map: object) -> None:
    assert broken(shards(weight_map=weight_map)) == ["ST-INDEX-STRUCTURE"]


@pytest.mark.parametrize("metadata", [None, [], "x", 3])
def test_metadata_that_is_no_object_is_one_fault(metadata: object) -> None:
    (found,) = check(shards(metadata=metadata))
    assert (found.requirement, found.pointer) == ("ST-INDEX-STRUCTURE", "/metadata")


@pytest.mark.parametrize("file", [None, 1, ["a"], {}])
def test_a_file_that_is_no_string_is_one_fault(file: object) -> None:
    assert broken(shards(weight_map={**MAP, "z2": file})) == ["ST-INDEX-STRUCTURE"]


def test_an_empty_weight_map_forgets_every_shard() -> None:
    assert broken(shards(weight_map={})) == ["ST-SHARD-LISTED"] * 2


NAMES = {
    "a parent folder": "../model.safetensors",
    "a folder": "sub/model.safetensors",
    "an absolute path": "/etc/model.safetensors",
    "a backslash": "..\\model.safetensors",
    "a drive": "C:model.safetensors",
    "a control character": "model\n.safetensors",
    "a zero byte": "model\0.safetensors",
    "another extension": "pytorch_model.bin",
    "nothing": "",
    "a parent alone": "..",
    "a character that moves a cursor": "model\x9b2J.safetensors",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_name_that_leads_elsewhere_is_reported_and_not_followed(name: str) -> None:
    subject = shards(weight_map={**MAP, "elsewhere": name})
    assert broken(subject) == ["ST-INDEX-NAMES"]
    assert "elsewhere" not in subject.weight_map


@pytest.mark.parametrize("name", [A, "a.safetensors", "…-1.safetensors", "a b.safetensors"])
def test_a_plain_name_is_followed(name: str) -> None:
    assert is_plain_name(name)


def test_a_missing_shard_is_one_fault_whatever_it_held() -> None:
    [found] = check(shards({A: ("x", "y")}))
    assert (found.requirement, found.file) == ("ST-INDEX-FILES", B)
    assert found.expected == "a file with 1 tensor"


def test_an_index_of_thousands_of_missing_shards_ends() -> None:
    missing = {str(i): f"{i}.safetensors" for i in range(20_000)}
    assert len(check(shards(weight_map={**MAP, **missing}))) == 20_000


def test_an_unreadable_shard_is_not_reported_again() -> None:
    assert broken(shards({A: ("x", "y")}, unread=(B,), metadata={"total_size": 3})) == []


def test_a_tensor_of_the_index_that_is_in_no_file_is_a_phantom() -> None:
    [found] = check(shards(weight_map={**MAP, "w": B}))
    assert (found.requirement, found.tensor) == ("ST-INDEX-TENSORS", "w")
    assert found.found == "the tensor in no file"


def test_a_tensor_in_another_shard_says_in_which() -> None:
    files = {A: ("x", "y"), B: ("z", "w")}
    [found] = check(shards(files, {**MAP, "z": A, "w": B}))
    assert (found.requirement, found.found) == ("ST-INDEX-TENSORS", f"the tensor in {B}")


def test_a_malformed_tensor_is_no_phantom() -> None:
    headers = {A: header(A, ("x", "y")), B: header(B, (), broken=("z",))}
    subject = join((A, B), headers, {"weight_map": MAP}, has_index=True)
    assert broken(subject) == []


def test_a_shard_that_the_index_forgot_is_reported_once() -> None:
    files = {**SOUND, "model-old.safetensors": ("w", "v")}
    assert broken(shards(files)) == ["ST-SHARD-LISTED"]


def test_a_stale_shard_with_the_same_tensors_is_also_ambiguous() -> None:
    files = {**SOUND, "model-old.safetensors": ("z",)}
    assert broken(shards(files)) == ["ST-SHARD-LISTED", "ST-TENSOR-UNIQUE"]


def test_a_model_file_beside_the_index_is_not_reported_as_a_stale_shard() -> None:
    assert broken(shards({**SOUND, "model.safetensors": ("w",)})) == ["ST-SHARD-SINGLE"]


def test_a_tensor_that_the_index_forgot_is_reported() -> None:
    assert broken(shards(weight_map={"x": A, "z": B})) == ["ST-SHARD-TENSORS"]


def test_a_tensor_in_two_shards_is_reported_once() -> None:
    [found] = check(shards({A: ("x", "y", "z"), B: ("z",)}))
    assert (found.requirement, found.tensor, found.found) == (
        "ST-TENSOR-UNIQUE",
        "z",
        f"{A}, {B}",
    )


@pytest.mark.parametrize("total", [0, 2, 4, "3", True, None, [3], 3.5, -3, 10**300])
def test_a_wrong_total_is_reported(total: object) -> None:
    assert broken(shards(metadata={"total_size": total})) == ["ST-INDEX-TOTAL"]


@pytest.mark.parametrize("metadata", [{"total_size": 3}, {"total_size": 3.0}, {}])
def test_a_right_total_or_none_is_not(metadata: object) -> None:
    assert broken(shards(metadata=metadata)) == []


def numbered(*names: str) -> list[str]:
    """Check shards of these names, one tensor each."""
    files = {f"{name}.safetensors": (name,) for name in names}
    return broken(shards(files, {name: f"{name}.safetensors" for name in names}))


@pytest.mark.parametrize(
    "names",
    [
        ("m-1-of-3", "m-2-of-3"),
        ("m-1-of-2", "m-3-of-2"),
        ("m-0-of-2", "m-1-of-2"),
        ("m-1-of-1", "m-2-of-2"),
        ("m-1-of-2", "n-2-of-2"),
        ("m-1-of-2", "m-01-of-2"),
        ("m-1-of-999999999",),
    ],
)
def test_numbers_that_do_not_add_up_are_reported_once(names: tuple[str, ...]) -> None:
    assert numbered(*names) == ["ST-SHARD-NUMBERS"]


@pytest.mark.parametrize(
    "names",
    [
        ("m-1-of-1",),
        ("m-1-of-2", "m-2-of-2"),
        ("m-00001-of-00002", "m-00002-of-00002"),
        ("one", "two"),
        ("m-of-2", "m-1-of"),
        ("m-1-of-2", "m-2-of-2", "embeddings"),
        (f"m-1-of-{'9' * 100}",),
    ],
)
def test_numbers_that_do_are_not(names: tuple[str, ...]) -> None:
    assert numbered(*names) == []
