"""What a checkpoint's tensor files hold, beside what its manifest implies.

Names tell what an unquantized tensor is for: a matrix called `weight` is a linear layer, unless
its module is an embedding or a norm.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nibblespec.conformance.artifacts.inspect import (
    PARTS,
    count_layers,
    count_weights,
    expected_tensors,
    implied_bytes,
    pattern_of,
)
from nibblespec.conformance.artifacts.reading.safetensors_headers import Header
from nibblespec.conformance.artifacts.reading.tensor_entries import TensorEntry
from nibblespec.spec.formats import AnyManifest

EMBEDDINGS = "embeddings"
LINEARS = "linear layers"
NORMS = "norms"
OTHERS = "other tensors"

UNQUANTIZED = (EMBEDDINGS, LINEARS, NORMS, OTHERS)
"""What tensors are for that the manifest does not describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tensors that hold the same thing."""

    name: str
    implied: int | None
    """Bytes that the manifest implies; None of what it does not know."""
    stored: int
    """Bytes in the files."""
    tensors: int
    """Number of tensors in the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unquantized:
    """Linear layers that are stored unquantized, alike in all but their number."""

    pattern: str
    """Their names, with `*` for the numbers."""
    count: int
    rows: int
    columns: int
    dtype: str
    bytes: int
    """Of all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the tensor files of a checkpoint hold."""

    files: int
    """Tensor files whose headers could be read."""
    bytes: int
    """Their sizes together."""
    header_bytes: int
    parts: tuple[Part, ...]
    """All tensors by what they are for: those of quantized layers first."""
    unquantized_bytes: int
    linear_layers: int
    """Quantized layers, and those that are not."""
    linear_weights: int
    """Weights of all of them."""
    coverage: float
    """Share of these weights that are quantized."""
    unquantized: tuple[Unquantized, ...]
    """The largest first."""


def inspect_files(manifest: AnyManifest, headers: Mapping[str, Header]) -> Stored:
    """Compare the headers of a checkpoint's files with its manifest, which has no errors."""
    stored: Counter[str] = Counter()
    tensors: Counter[str] = Counter()
    linears: list[TensorEntry] = []
    for part, entry in _assigned(manifest, headers):
        stored[part] += entry.end - entry.begin
        tensors[part] += 1
        if part == LINEARS:
            linears.append(entry)
    implied = implied_bytes(manifest)
    names = [*PARTS.values(), *UNQUANTIZED]
    unquantized = tuple(_alike(linears))
    packed = count_weights(manifest)
    weights = packed + sum(kind.count * kind.rows * kind.columns for kind in unquantized)
    return Stored(
        files=len(headers),
        bytes=sum(header.size for header in headers.values()),
        header_bytes=sum(header.data_start for header in headers.values()),
        parts=tuple(
            Part(name=name, implied=implied.get(name), stored=stored[name], tensors=tensors[name])
            for name in names
            if name in implied or tensors[name]
        ),
        unquantized_bytes=sum(stored[part] for part in UNQUANTIZED),
        linear_layers=count_layers(manifest) + sum(kind.count for kind in unquantized),
        linear_weights=weights,
        coverage=packed / weights if weights else 0.0,
        unquantized=unquantized,
    )


def _assigned(
    manifest: AnyManifest, headers: Mapping[str, Header]
) -> Iterator[tuple[str, TensorEntry]]:
    """Yield every tensor with the part it belongs to."""
    specs = list(expected_tensors(manifest))
    modules = {spec.module for spec in specs}
    # Where any shard may hold a tensor, the file that it is expected in is none.
    claims = {(spec.file, spec.name): PARTS[spec.role] for spec in specs if spec.role in PARTS}
    for file, header in headers.items():
        for name, entry in header.tensors.items():
            claimed = claims.get(("", name)) or claims.get((file, name))
            yield claimed or purpose(entry, modules), entry


def purpose(entry: TensorEntry, modules: Container[str]) -> str:
    """Say what a tensor is for that belongs to no quantized layer, by its name and axes.

    `modules` are the quantized layers: a weight beside the packed one is no layer of its own.
    """
    module = _module(entry.name)
    last = module.rpartition(".")[2]
    if "embed" in last or last in ("wte", "wpe"):
        return EMBEDDINGS
    if "norm" in last or last.startswith("ln_"):
        return NORMS
    return LINEARS if matrices(entry) and module not in modules else OTHERS


def matrices(entry: TensorEntry) -> tuple[int, int, int] | None:
    """Return how many linear layers a tensor holds and the shape [N, K] of each, None of others.

    A tensor of three axes holds those of all experts, one after the other.
    """
    module = _module(entry.name)
    if len(entry.shape) == 2 and (module != entry.name or module == "lm_head"):
        return 1, entry.shape[0], entry.shape[1]
    if len(entry.shape) == 3 and ".experts." in f".{module}" and module.endswith("_proj"):
        return entry.shape[0], entry.shape[1], entry.shape[2]
    return None


def _module(name: str) -> str:
    """Return the module that a tensor is the weight of, or its whole name."""
    return name.removesuffix(".weight")


def _alike(linears: Iterable[TensorEntry]) -> Iterator[Unquantized]:
    """Collect layers that differ in the numbers of their names only."""
    counts: Counter[tuple[str, int, int, str]] = Counter()
    sizes: Counter[tuple[str, int, int, str]] = Counter()
    for entry in linears:
        count, rows, columns = matrices(entry) or (0, 0, 0)
        kind = pattern_of(_module(entry.name)), rows, columns, entry.dtype
        counts[kind] += count
        sizes[kind] += entry.end - entry.begin
    for kind, size in sizes.most_common():
        pattern, rows, columns, dtype = kind
        yield Unquantized(
            pattern=pattern,
            count=counts[kind],
            rows=rows,
            columns=columns,
            dtype=dtype,
            bytes=size,
        )
