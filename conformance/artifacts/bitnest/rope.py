"""Rules on the copy of RoPE settings in a manifest of `bitnest-package-v1`."""

from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.bitnest_package.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

TYPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
"""Kinds of scaling that the libraries know."""


def _scaling(manifest: Manifest) -> Mapping[str, object]:
    """Return the scaling without its nulls, which count as absent."""
    scaling = (manifest.rope.scaling if manifest.rope else None) or {}
    return {key: value for key, value in scaling.items() if value is not None}


def _number(value: object) -> int | float | None:
    """Return a JSON number, None for anything else, true and false among it."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def theta(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROPE-THETA: a base."""
    base = manifest.rope.theta if manifest.rope else None
    if base is not None and base <= 0:
        yield Problem(
            message="the base of the rotary embedding is not positive",
            pointer=pointer("rope", "theta"),
            expected="a number greater than 0, or null",
            found=show(base),
        )


def factor(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROPE-FACTOR: contexts are extended, not cut."""
    scaling = _scaling(manifest)
    number = _number(scaling.get("factor"))
    if "factor" in scaling and (number is None or number < 1):
        yield Problem(
            message="the factor of the RoPE scaling is no number of at least 1",
            pointer=pointer("rope", "scaling", "factor"),
            expected="a number of at least 1",
            found=show(scaling["factor"]),
        )


def bands(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROPE-BANDS: the low band ends before the high one begins."""
    scaling = _scaling(manifest)
    if "low_freq_factor" not in scaling or "high_freq_factor" not in scaling:
        return
    low, high = _number(scaling["low_freq_factor"]), _number(scaling["high_freq_factor"])
    if low is None or high is None or low >= high:
        yield Problem(
            message="the frequency factors of the RoPE scaling are not in order",
            pointer=pointer("rope", "scaling", "low_freq_factor"),
            expected=f"a number less than high_freq_factor, {show(scaling['high_freq_factor'])}",
            found=show(scaling["low_freq_factor"]),
        )


def positions(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROPE-POSITIONS: numbers of positions."""
    original = "original_max_position_embeddings"
    counts: Mapping[tuple[str, ...], object] = {
        ("rope", "max_position_embeddings"): (
            manifest.rope.max_position_embeddings if manifest.rope else None
        ),
        ("rope", "scaling", original): _scaling(manifest).get(original),
    }
    for place, count in counts.items():
        number = _number(count)
        if count is not None and (number is None or number < 1 or number % 1):
            yield Problem(
                message="a number of positions is no integer of at least 1",
                pointer=pointer(*place),
                expected="an integer of at least 1",
                found=show(count),
            )


def kind(manifest: Manifest) -> Iterator[Problem]:
    """BN1-ROPE-TYPE: a scaling that the libraries know."""
    scaling = _scaling(manifest)
    key = "rope_type" if "rope_type" in scaling else "type"
    if key in scaling and scaling[key] not in TYPES:
        yield Problem(
            message="the kind of RoPE scaling is unusual",
            pointer=pointer("rope", "scaling", key),
            expected=", ".join(TYPES),
            found=show(scaling[key]),
        )
