"""Shards: the index, the files in the folder and their headers agree, in all directions."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.conformance.artifacts.reading.folder import INDEX, SUFFIX
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header
from nibblespec.conformance.artifacts.reading.tensor_entries import bytes_text
from nibblespec.spec.json_strict import pointer

SINGLE = "model.safetensors"

_NOT_PLAIN = re.compile(r"[/\\:\x00-\x1f\x7f-\x9f]")
_NUMBERED = re.compile(r"(?P<name>.*)-(?P<i>[0-9]{1,9})-of-(?P<n>[0-9]{1,9})\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """What the three say: the folder, the headers and the index."""

    files: tuple[str, ...]
    """Every name in the folder that ends in `.safetensors`, sorted."""
    headers: Mapping[str, Header]
    """The headers that could be read, by file."""
    index: Mapping[str, object] | None = None
    """The index as parsed, None where there is none or it is no JSON object."""
    has_index: bool = False
    indexed: frozenset[str] | None = None
    """Every key of `weight_map`, None where there is no such object."""
    weight_map: Mapping[str, str] = field(default_factory=dict)
    """Tensor to file, as far as the index is sound; file names are safe to look up."""
    places: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tensor to the files whose headers hold it."""


def join(
    files: tuple[str, ...],
    headers: Mapping[str, Header],
    index: Mapping[str, object] | None,
    *,
    has_index: bool,
) -> Shards:
    """Put together what folder, headers and index say."""
    raw = index.get("weight_map") if index else None
    return Shards(
        files=files,
        headers=headers,
        index=index,
        has_index=has_index,
        indexed=frozenset(raw) if isinstance(raw, dict) else None,
        weight_map={
            tensor: file
            for tensor, file in (raw.items() if isinstance(raw, dict) else ())
            if isinstance(file, str) and is_plain_name(file)
        },
        places=find_places(headers),
    )


def find_places(headers: Mapping[str, Header]) -> dict[str, list[str]]:
    """Return the files that hold each tensor, entries that are malformed included."""
    found: dict[str, list[str]] = {}
    for file, header in headers.items():
        for name in (*header.tensors, *header.broken):
            found.setdefault(name, []).append(file)
    return found


def is_plain_name(name: str) -> bool:
    """Say whether a name is that of a safetensors file in the folder itself (ST-INDEX-NAMES)."""
    return name.endswith(SUFFIX) and not _NOT_PLAIN.search(name)


def unique(places: Mapping[str, Sequence[str]]) -> Iterator[Problem]:
    """Find the tensors that are in several files (ST-TENSOR-UNIQUE)."""
    for tensor, files in places.items():
        if len(files) > 1:
            yield Problem(
                message="a tensor is in more than one file",
                tensor=tensor,
                file=files[1],
                expected="each tensor once",
                found=", ".join(files[:4]),
                hint="which one a reader takes is chance: remove all but one",
            )


def _required(shards: Shards) -> Iterator[Problem]:
    if not shards.has_index and shards.files != (SINGLE,):
        count = len(shards.files)
        yield Problem(
            message="there is no index, and the tensors are not in one file model.safetensors",
            file=INDEX if count > 1 else SINGLE,
            expected=f"{SINGLE} alone, or shards and {INDEX}",
            found=", ".join(shards.files[:3]) + (", …" if count > 3 else "") or "no such file",
        )


def _single(shards: Shards) -> Iterator[Problem]:
    if shards.indexed is not None and SINGLE in shards.files and SINGLE not in _named(shards):
        yield Problem(
            message="a model.safetensors lies beside the index: loaders differ in which they take",
            file=SINGLE,
            expected=f"no {SINGLE}, or one that the index names",
            found="both",
        )


def _numbers(shards: Shards) -> Iterator[Problem]:
    matches = [match for file in sorted(_named(shards)) if (match := _NUMBERED.fullmatch(file))]
    if not matches:
        return
    groups = sorted({(match["name"], int(match["n"])) for match in matches})
    name, count = groups[0]
    numbers = sorted(int(match["i"]) for match in matches)
    if len(groups) > 1:
        expected = f"one name and one count, as in {matches[0][0]}"
        found = ", ".join(f"{other}-…-of-{n}" for other, n in groups[:4])
    elif numbers != list(range(1, len(numbers) + 1)) or len(numbers) != count:
        present = set(numbers)
        missing = next((i for i in range(1, count + 1) if i not in present), None)
        expected = f"{name}-1-of-{count} to {name}-{count}-of-{count}, each once"
        found = f"{len(numbers)} of them" + (f", {missing} missing" if missing else "")
    else:
        return
    yield Problem(
        message="the numbers in the names of the shards do not add up",
        file=INDEX,
        expected=expected,
        found=found,
    )


def _structure(shards: Shards) -> Iterator[Problem]:
    if shards.index is None:
        return
    metadata = shards.index.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Problem(
            message="metadata of the index is no object",
            file=INDEX,
            pointer=pointer("metadata"),
            expected="an object, or no such key",
            found=show(metadata),
        )
    raw = shards.index.get("weight_map")
    if not isinstance(raw, dict):
        yield Problem(
            message="the index has no weight_map",
            file=INDEX,
            pointer=pointer("weight_map") if "weight_map" in shards.index else "",
            expected="an object whose values are file names",
            found=show(raw) if "weight_map" in shards.index else "no such key",
        )
        return
    for tensor, file in raw.items():
        if not isinstance(file, str):
            yield Problem(
                message="a value of weight_map is no string",
                file=INDEX,
                pointer=pointer("weight_map", tensor),
                tensor=tensor,
                expected="a file name",
                found=show(file),
            )


def _names(shards: Shards) -> Iterator[Problem]:
    raw = shards.index.get("weight_map") if shards.index else None
    for tensor, file in raw.items() if isinstance(raw, dict) else ():
        if isinstance(file, str) and not is_plain_name(file):
            yield Problem(
                message="a file name of the index is not that of a safetensors file in the folder",
                file=INDEX,
                pointer=pointer("weight_map", tensor),
                tensor=tensor,
                expected="a plain name that ends in .safetensors, without a folder",
                found=show(file),
                hint="it was not followed",
            )


def _index_files(shards: Shards) -> Iterator[Problem]:
    tensors = Counter(shards.weight_map.values())
    for file in sorted(tensors.keys() - set(shards.files)):
        lost = tensors[file]
        yield Problem(
            message="a shard that the index names is missing",
            file=file,
            expected=f"a file with {lost:,} tensor{'s' if lost > 1 else ''}",
            found="no such file",
        )


def _index_tensors(shards: Shards) -> Iterator[Problem]:
    for tensor, file in shards.weight_map.items():
        header = shards.headers.get(file)
        if header is None or tensor in header.tensors or tensor in header.broken:
            continue
        elsewhere = ", ".join(shards.places.get(tensor, ())[:4])
        yield Problem(
            message="the index maps a tensor to a file that does not hold it",
            file=INDEX,
            pointer=pointer("weight_map", tensor),
            tensor=tensor,
            expected=f"the tensor in {file}",
            found=f"the tensor in {elsewhere}" if elsewhere else "the tensor in no file",
        )


def _total(shards: Shards) -> Iterator[Problem]:
    metadata = shards.index.get("metadata") if shards.index else None
    if not isinstance(metadata, dict) or "total_size" not in metadata:
        return
    named, stated = _named(shards), metadata["total_size"]
    if not named or any(
        file not in shards.headers or shards.headers[file].broken for file in named
    ):
        return  # the sum is not known
    total = sum(
        entry.end - entry.begin for file in named for entry in shards.headers[file].tensors.values()
    )
    if isinstance(stated, bool) or stated != total:
        yield Problem(
            message="total_size is not the bytes of all tensors",
            file=INDEX,
            pointer=pointer("metadata", "total_size"),
            expected=bytes_text(total),
            found=show(stated),
        )


def _listed(shards: Shards) -> Iterator[Problem]:
    if shards.indexed is None:
        return
    for file in sorted(set(shards.files) - _named(shards) - {SINGLE}):
        yield Problem(
            message="the index does not name a safetensors file of the folder",
            file=file,
            expected="every safetensors file in weight_map",
            found="a file that loaders which list the folder load all the same",
            hint="remove the leftover of an earlier export, or add its tensors to the index",
        )


def _shard_tensors(shards: Shards) -> Iterator[Problem]:
    indexed = shards.indexed or frozenset()
    for file in sorted(_named(shards)):
        for tensor in shards.headers[file].tensors if file in shards.headers else ():
            if tensor not in indexed:
                yield Problem(
                    message="the index lacks a tensor of its shards",
                    file=file,
                    tensor=tensor,
                    expected="the tensor in weight_map",
                    found="nothing",
                )


def _named(shards: Shards) -> set[str]:
    """Return the files that the index names."""
    return set(shards.weight_map.values())


SHARD_RULES: Mapping[str, Rule[Shards]] = {
    "ST-INDEX-REQUIRED": _required,
    "ST-SHARD-SINGLE": _single,
    "ST-SHARD-NUMBERS": _numbers,
    "ST-INDEX-STRUCTURE": _structure,
    "ST-INDEX-NAMES": _names,
    "ST-INDEX-FILES": _index_files,
    "ST-INDEX-TENSORS": _index_tensors,
    "ST-INDEX-TOTAL": _total,
    "ST-SHARD-LISTED": _listed,
    "ST-SHARD-TENSORS": _shard_tensors,
    "ST-TENSOR-UNIQUE": lambda shards: unique(shards.places),
}
"""What folder, headers and index of a sharded checkpoint have to satisfy together."""
