"""A program that answers the golden vectors: any backend, called as the index says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nibblespec.conformance.vectors.container import decode, encode
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import Array

Backend = Any
"""An object with the operations as attributes."""

ORDER: Mapping[str, tuple[str, ...]] = {
    "pack_words": ("codes", "nbits"),
    "unpack_words": ("words", "nbits", "count"),
    "dashq_reconstruct": ("words", "scale", "zero", "module", "dtype"),
    "dashq_linear": ("x", "words", "scale", "zero", "bias", "module"),
    "pack_planes": ("q4", "qr"),
    "unpack_planes": ("hi", "lo"),
    "nested_reconstruct": ("hi", "lo", "scale", "plane", "dtype"),
    "quantize_activations": ("x", "group"),
    "nested_linear": ("xq", "sx", "hi", "lo", "scale", "bias", "plane", "dtype"),
    "hadamard": ("x", "had_k", "dtype"),
    "kv_quantize": ("x", "offset"),
    "kv_dequantize": ("hi", "lo", "scale", "plane"),
    "kv_attention": (
        *("q", "k_hi", "k_lo", "k_scale", "v_hi", "v_lo", "v_scale", "v_offset"),
        *("position", "plane", "softmax_scale", "dtype"),
    ),
}
"""Arguments of each operation, in order, by their names in the index."""


def write_outputs(
    folder: Path,
    backend: Backend | None = None,
    operations: tuple[str, ...] = tuple(ORDER),
    name: str = "outputs.safetensors",
) -> None:
    """Answer the cases of some operations in an exported folder.

    Without a backend each case goes to the reference in the evaluation and mode that it names; a
    backend answers those for what it declares.
    """
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    inputs = decode((folder / index["inputs"]).read_bytes())
    found: dict[str, Array] = {}
    for case in index["cases"]:
        if case["operation"] in operations and (backend is None or declares(backend, case)):
            found |= answer(case, inputs, backend or reference_for(case["parameters"]))
    (folder / name).write_bytes(encode(found))


def answer(
    case: Mapping[str, Any], inputs: Mapping[str, Array], backend: Backend
) -> dict[str, Array]:
    """Make the call of one case; return the outputs under the names that the index gives them."""
    given = dict(case["parameters"])
    for argument, entry in case["inputs"].items():
        given[argument] = None if entry is None else inputs[entry["tensor"]]
    if "module" in given:
        given["module"] = Module.model_validate(given["module"])
    operation = getattr(backend, case["operation"])
    result = operation(*(given[argument] for argument in ORDER[case["operation"]]))
    arrays = result if isinstance(result, tuple) else (result,)
    names = [output["tensor"] for output in case["outputs"].values()]
    return dict(zip(names, arrays, strict=True))


def declares(backend: Backend, case: Mapping[str, Any]) -> bool:
    """Say whether a case is for what a backend declares."""
    claims, parameters = backend.capabilities(), case["parameters"]
    declared = {
        "evaluation": claims.dashq_rounding,
        "weight_rounding": claims.linear_weight_rounding,
        "mode": "integer" if claims.prefill_f16_from is None else "prefill-f16",
    }
    return all(parameters.get(key, "any") in ("any", value) for key, value in declared.items())


def reference_for(parameters: Mapping[str, Any]) -> ReferenceBackend:
    """Return the reference in the evaluation and mode of a case."""
    evaluation = parameters.get("evaluation", "any")
    rounding = parameters.get("weight_rounding", "any")
    return ReferenceBackend(
        dashq_rounding="fused" if evaluation == "any" else evaluation,
        linear_weight_rounding="unrounded" if rounding == "any" else rounding,
        prefill_f16_from=0 if parameters.get("mode") == "prefill-f16" else None,
    )
