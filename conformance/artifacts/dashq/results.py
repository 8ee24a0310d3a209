"""Rules on what a manifest of `dashq-packed-linear` tells of its origin: params and results."""

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from nibblespec.conformance.artifacts.dashq.modules import MODULES
from nibblespec.conformance.artifacts.findings import Problem
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.dashq_packed_linear.v1.dtypes import canonical_dtype
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

TASKS = (
    "arc_challenge",
    "arc_easy",
    "commonsense_qa",
    "hellaswag",
    "lambada_openai",
    "openbookqa",
    "piqa",
    "truthfulqa_mc2",
    "winogrande",
)
"""The tasks whose mean is `zeroshot_avg`."""

_TOLERANCE = 1e-6
_LONGEST_REPR = 10_000

_STRING = r"'[^'\\]*'|\"[^\"\\]*\""
_PAIR = re.compile(
    rf"\s*({_STRING})\s*:\s*"
    rf"({_STRING}|True|False|None|-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*"
)

Scalar = str | float | bool | None


def _asked(manifest: Manifest) -> Mapping[str, tuple[str, Scalar]]:
    """Return what params says of all modules: key of a module to key of params and value."""
    if manifest.params is None:
        return {}
    asked: Mapping[str, tuple[str, Scalar]] = {
        "nbits": ("bits", manifest.params.bits),
        "group_size": ("group_size", manifest.params.group_size),
        "scale_zero_dtype": ("scale_zero_dtype", _dtype(manifest.params.scale_zero_dtype)),
    }
    return {key: (name, value) for key, (name, value) in asked.items() if value is not None}


def _dtype(name: Scalar) -> Scalar:
    return (canonical_dtype(name) or name) if isinstance(name, str) else name


def params_unused(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-PARAMS-UNUSED: params describes some module."""
    modules = manifest.quantized_modules.values()
    for key, (name, value) in _asked(manifest).items():
        if modules and all(_dtype(getattr(module, key)) != value for module in modules):
            yield Problem(
                message=f"no module has the `{name}` of `params`",
                pointer=pointer("params", name),
                expected=f"the `{key}` of at least one module",
                found=show(value),
            )


def params_differ(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-PARAMS-DIFFER: modules that are not as params says, where others are."""
    modules = manifest.quantized_modules
    for key, (name, value) in _asked(manifest).items():
        others = [module for module in modules if _dtype(getattr(modules[module], key)) != value]
        if len(others) == len(modules):
            continue
        for module in others:
            yield Problem(
                message=f"`{key}` is not the `{name}` of `params`",
                pointer=pointer(MODULES, module, key),
                expected=f"{show(value)}, or a reader that does not take params for the modules'",
                found=show(getattr(modules[module], key)),
            )


def results_mean(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-RESULTS-MEAN: the average is that of the tasks."""
    results = manifest.results or {}
    average, scores = _number(results.get("zeroshot_avg")), []
    for task in TASKS:
        score = _number(results.get(task))
        if score is None:
            return
        scores.append(score)
    if average is None:
        return
    # Divided first, so that no sum overflows.
    mean = math.fsum(score / len(TASKS) for score in scores)
    allowed = _TOLERANCE * max(map(abs, scores))
    if abs(average - mean) > max(allowed, _half_a_unit(average)):
        yield Problem(
            message="`zeroshot_avg` is not the mean of its nine tasks",
            pointer=pointer("results", "zeroshot_avg"),
            expected=show(mean),
            found=show(average),
        )


def _half_a_unit(number: float) -> float:
    """Return half a unit of a number's last decimal, 0 for one that is written without decimals."""
    exponent = Decimal(repr(number)).as_tuple().exponent
    if number.is_integer() or not isinstance(exponent, int):
        return 0.0
    # Rounding errors of the mean, far below one part in 10^9, are no reason to refuse a half.
    return 0.5 * (1 + 1e-9) * math.pow(10, exponent)


def _number(value: object) -> float | None:
    """Return a number that float64 holds, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def results_params(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-RESULTS-PARAMS: the copy of params is one."""
    text = (manifest.results or {}).get("Params")
    if manifest.params is None or not isinstance(text, str):
        return
    copy = read_repr(text)
    if copy is None:
        return
    # exclude_unset: what the manifest says, not what the model fills in.
    params = manifest.params.model_dump(exclude_unset=True)
    different = [key for key in {**params, **copy} if not _same(key, params, copy)]
    if different:
        key = different[0]
        yield Problem(
            message="`results.Params` is no copy of `params`",
            pointer=pointer("results", "Params"),
            expected=f"{key}: {show(params[key])}" if key in params else f"no {show(key)}",
            found=f"{key}: {show(copy[key])}" if key in copy else f"no {show(key)}",
            hint=f"{len(different)} keys differ" if len(different) > 1 else "",
        )


def _same(key: str, params: Mapping[str, object], copy: Mapping[str, Scalar]) -> bool:
    if key not in params or key not in copy:
        return False
    one, other = params[key], copy[key]
    # In Python True is 1; in JSON it is not.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def read_repr(text: str) -> dict[str, Scalar] | None:
    """Read a flat Python dictionary as `repr` writes it; None for anything else.

    Nothing is evaluated: strings without backslashes, decimal numbers, True, False and None.
    """
    inner = text.strip()
    if len(text) > _LONGEST_REPR or inner[:1] != "{" or inner[-1:] != "}" or len(inner) < 2:
        return None
    inner = inner[1:-1]
    found: dict[str, Scalar] = {}
    position = 0
    while pair := _PAIR.match(inner, position):
        found[pair[1][1:-1]] = _scalar(pair[2])
        position = pair.end()
        if position == len(inner):
            return found
        if inner[position] != ",":
            return None
        position += 1
    return {} if not found and not inner.strip() else None


def _scalar(text: str) -> Scalar:
    if text[0] in "'\"":
        return text[1:-1]
    words: Mapping[str, Scalar] = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    # int() is slow on, and past 4,300 digits refuses, what is no parameter of anything.
    return int(text) if len(text) <= 300 and text.lstrip("-").isdigit() else float(text)
