"""Cases of pack_planes, unpack_planes and nested_reconstruct, and the nested weights they share."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from nibblespec.conformance.vectors.case import Case, Exact, Tensor, exact
from nibblespec.conformance.vectors.cases.dtypes import DTYPES, PLANES, SHORT
from nibblespec.conformance.vectors.streams import Shape, grid, integers
from nibblespec.reference.nested import nested_reconstruct
from nibblespec.reference.planes import pack_planes, unpack_planes
from nibblespec.reference.rounding import round_float64
from nibblespec.spec.operations import Bytes, Float16, Nibbles, Plane

LAYOUT = ("BN1-PLANES-ORDER", "BN1-PLANES-EXCESS", "BN1-PLANES-ROLES")
WEIGHT = {"draft": "BN1-DRAFT-WEIGHT", "target": "BN1-TARGET-WEIGHT"}

EDGE_SCALES = (0.0, 2.0**-24, 1023 * 2.0**-24, 2.0**-14, 2.0**-10 + 2.0**-20, 0.1, 1.0, 3000.0)
LARGEST_SCALE = 65504.0


@dataclass(frozen=True, slots=True)
class Planes:
    """A nested weight; `name` is the beginning of its tensors' names."""

    name: str
    hi: Bytes
    lo: Bytes
    scale: Float16


def cases() -> Iterator[Case]:
    """Yield codes, planes and weights."""
    yield from _planes()
    yield from _weights()


def any_codes(name: str, shape: Shape) -> tuple[Nibbles, Nibbles]:
    """Return q4 and qr over their whole range; qr is not negative where q4 is −8."""
    q4 = integers(f"{name} q4", shape, -8, 7)
    qr = integers(f"{name} qr", shape, -8, 7)
    return q4.astype(np.int8), np.where(q4 == -8, np.maximum(qr, 0), qr).astype(np.int8)


def all_pairs() -> tuple[Nibbles, Nibbles]:
    """Return every pair of q4 and qr that is allowed, int8 [248] each."""
    pairs = [(q4, qr) for q4, qr in product(range(-8, 8), range(-8, 8)) if q4 > -8 or qr >= 0]
    q4, qr = np.array(pairs, np.int8).T
    return q4.copy(), qr.copy()


def nested_weight(name: str, rows: int, groups: int, group: int) -> Planes:
    """Return a weight with any codes and a scale of its own for each group, around 0.01."""
    hi, lo = pack_planes(*any_codes(name, (rows, groups * group)))
    scale = grid(f"{name} scale", (rows, groups), 600, 4000, -18)
    return Planes(name, hi, lo, round_float64(scale, "float16"))


def plane_tensors(weight: Planes, plane: Plane) -> dict[str, Tensor | None]:
    """Return the inputs hi, lo and scale; the draft has no lo."""
    return {
        "hi": Tensor(f"{weight.name}/hi", weight.hi),
        "lo": None if plane == "draft" else Tensor(f"{weight.name}/lo", weight.lo),
        "scale": Tensor(f"{weight.name}/scale", weight.scale),
    }


def _planes() -> Iterator[Case]:
    q4, qr = all_pairs()
    everything = "every pair of codes that is allowed, q4 = −8 and qr = −8 among them"
    yield _pack("all-pairs", everything, q4.reshape(31, 8), qr.reshape(31, 8))
    yield _pack("one-byte", "one row of two columns", q4[[0, -1]][None], qr[[0, -1]][None])
    columns = np.arange(16, dtype=np.int8)
    positions = (columns - 8)[None].repeat(3, axis=0)
    yield _pack(
        "positions",
        "q4 counts the columns up, qr counts them down",
        positions,
        -1 - positions,
    )
    yield _pack("any", "any codes", *any_codes("pack_planes/any", (5, 30)))
    hi, lo = pack_planes(q4.reshape(31, 8), qr.reshape(31, 8))
    yield _unpack("all-pairs", everything, hi, lo)
    every_byte = np.arange(256, dtype=np.uint8).reshape(16, 16)
    yield _unpack(
        "every-byte",
        "every byte in hi; in lo a byte whose codes go with it",
        every_byte,
        every_byte ^ np.uint8(0x88),
    )
    yield _unpack("any", "any codes", *pack_planes(*any_codes("unpack_planes/any", (5, 30))))


def _pack(name: str, shows: str, q4: Nibbles, qr: Nibbles) -> Case:
    case_id = f"pack_planes/{name}"
    hi, lo = pack_planes(q4, qr)
    return Case(
        id=case_id,
        shows=shows,
        requirements=LAYOUT,
        parameters={},
        inputs={"q4": Tensor(f"{case_id}/q4", q4), "qr": Tensor(f"{case_id}/qr", qr)},
        outputs={"hi": Exact(hi), "lo": Exact(lo)},
    )


def _unpack(name: str, shows: str, hi: Bytes, lo: Bytes) -> Case:
    case_id = f"unpack_planes/{name}"
    q4, qr = unpack_planes(hi, lo)
    return Case(
        id=case_id,
        shows=shows,
        requirements=LAYOUT,
        parameters={},
        inputs={"hi": Tensor(f"{case_id}/hi", hi), "lo": Tensor(f"{case_id}/lo", lo)},
        outputs={"q4": Exact(q4), "qr": Exact(qr)},
    )


def _weights() -> Iterator[Case]:
    q4, qr = all_pairs()
    scales = np.array([*EDGE_SCALES, LARGEST_SCALE], np.float16)[:, np.newaxis]
    rows = len(scales)
    edges = Planes(
        "nested_reconstruct/edges",
        *pack_planes(np.tile(q4, (rows, 1)), np.tile(qr, (rows, 1))),
        scales,
    )
    named = (
        (
            edges,
            "every pair of codes with zero, subnormal, ordinary and the largest scales",
            ("BN1-SCALE-SIXTEENTH", "NUM-ROUND-SUBNORMAL", "NUM-ROUND-OVERFLOW", "NUM-ROUND-ZERO"),
        ),
        (
            nested_weight("nested_reconstruct/groups", 5, 6, 16),
            "six groups a row, each with a scale of its own",
            ("BN1-WEIGHT-GROUPS",),
        ),
        (
            nested_weight("nested_reconstruct/odd-groups", 3, 6, 3),
            "groups of three columns: bytes hold codes of two groups",
            ("BN1-WEIGHT-GROUPS",),
        ),
        (
            nested_weight("nested_reconstruct/g128", 2, 2, 128),
            "groups of 128 columns",
            ("BN1-WEIGHT-GROUPS",),
        ),
    )
    for (weight, shows, requirements), plane, dtype in product(named, PLANES, DTYPES):
        values = nested_reconstruct(weight.hi, weight.lo, weight.scale, plane, dtype)
        yield Case(
            id=f"{weight.name}-{plane}-{SHORT[dtype]}",
            shows=shows,
            requirements=(WEIGHT[plane], *requirements, "NUM-ROUND-NEAREST"),
            parameters={"plane": plane, "dtype": dtype},
            inputs=plane_tensors(weight, plane),
            outputs={"weight": exact(values)},
        )
