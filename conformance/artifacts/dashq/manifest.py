"""The rules on manifests of `dashq-packed-linear`, by requirement id."""

from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts import names
from nibblespec.conformance.artifacts.dashq import modules as dashq_modules
from nibblespec.conformance.artifacts.dashq import results as dashq_results
from nibblespec.conformance.artifacts.dashq import shapes as dashq_shapes
from nibblespec.conformance.artifacts.dashq.modules import MODULES
from nibblespec.conformance.artifacts.findings import Problem, Rule
from nibblespec.conformance.artifacts.output.show import show
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest
from nibblespec.spec.json_strict import pointer

_TENSORS = ("weight", "bias", "scale", "zero", "W_q_packed")


def method(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-METHOD: the method of the format."""
    if manifest.method not in (None, "dashq"):
        yield Problem(
            message="`method` is not that of the format",
            pointer=pointer("method"),
            expected='"dashq"',
            found=show(manifest.method),
        )


def base_model(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-BASE-MODEL: a Hub id."""
    return names.hub_id(manifest.base_model, "base_model")


def model_class(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODEL-CLASS: the class that has the modules."""
    if manifest.model_class == "image_text_to_text":
        return
    given = "model_class" in manifest.model_fields_set
    for name in manifest.quantized_modules:
        if "language_model" in name.split("."):
            yield Problem(
                message="`model_class` is one that has no modules of these names",
                pointer=pointer("model_class") if given else "",
                expected='"image_text_to_text"',
                found=f"{show(manifest.model_class)}, and the module {show(name)}",
            )
            return


def modules_present(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-MODULES-PRESENT: something is packed."""
    if not manifest.quantized_modules:
        yield Problem(
            message="no module is quantized",
            pointer=pointer(MODULES),
            expected="at least one module",
            found="none",
        )


def name_segments(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-SEGMENTS: no empty segment."""
    return names.segments(manifest.quantized_modules, MODULES)


def name_characters(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-CHARACTERS: no separators, control characters or stray white space."""
    return names.characters(manifest.quantized_modules, MODULES)


def name_ascii(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-ASCII: plain characters."""
    return names.ascii_only(manifest.quantized_modules, MODULES)


def name_nested(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-NESTED: no module inside another."""
    return names.nested(manifest.quantized_modules, MODULES)


def name_tensor(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-TENSOR: modules, not tensors."""
    return names.tensor_names(manifest.quantized_modules, MODULES, _TENSORS)


def name_linear(manifest: Manifest) -> Iterator[Problem]:
    """DQ1-NAME-LINEAR: linear layers other than the output layer."""
    for name in manifest.quantized_modules:
        last = name.rpartition(".")[2]
        if last in ("lm_head", "embed_tokens") or last.endswith("norm"):
            yield Problem(
                message="the module is one that readers expect unquantized",
                pointer=pointer(MODULES, name),
                expected="no embedding, norm or output layer",
                found=show(name),
            )


RULES: Mapping[str, Rule[Manifest]] = {
    "DQ1-METHOD": method,
    "DQ1-BASE-MODEL": base_model,
    "DQ1-MODEL-CLASS": model_class,
    "DQ1-MODULES-PRESENT": modules_present,
    "DQ1-PARAMS-UNUSED": dashq_results.params_unused,
    "DQ1-PARAMS-DIFFER": dashq_results.params_differ,
    "DQ1-MODULE-PACKING": dashq_modules.packing,
    "DQ1-MODULE-QUANT-IN": dashq_modules.quant_in,
    "DQ1-MODULE-PADDED": dashq_modules.padded,
    "DQ1-MODULE-GROUP-SIZE": dashq_modules.group_size,
    "DQ1-MODULE-GROUPS": dashq_modules.groups,
    "DQ1-MODULE-SIZE": dashq_modules.size,
    "DQ1-MODULE-SCALE-DTYPE": dashq_modules.scale_dtype,
    "DQ1-MODULE-LINEAR-DTYPE": dashq_modules.linear_dtype,
    "DQ1-MODULE-DTYPE-NAME": dashq_modules.dtype_name,
    "DQ1-SHAPE-KV": dashq_shapes.key_value,
    "DQ1-SHAPE-QO": dashq_shapes.query_output,
    "DQ1-SHAPE-HEADS": dashq_shapes.heads,
    "DQ1-SHAPE-ATTENTION-INPUT": dashq_shapes.attention_input,
    "DQ1-SHAPE-GATE-UP": dashq_shapes.gate_up,
    "DQ1-SHAPE-MLP-INPUT": dashq_shapes.mlp_input,
    "DQ1-SHAPE-DOWN": dashq_shapes.down,
    "DQ1-SHAPE-HIDDEN": dashq_shapes.hidden,
    "DQ1-SHAPE-EXPERTS": dashq_shapes.experts,
    "DQ1-EXPERTS-COMPLETE": dashq_shapes.experts_complete,
    "DQ1-LAYERS-CONTIGUOUS": dashq_shapes.contiguous,
    "DQ1-LAYERS-COVERAGE": dashq_shapes.coverage,
    "DQ1-RESULTS-MEAN": dashq_results.results_mean,
    "DQ1-RESULTS-PARAMS": dashq_results.results_params,
    "DQ1-NAME-SEGMENTS": name_segments,
    "DQ1-NAME-CHARACTERS": name_characters,
    "DQ1-NAME-ASCII": name_ascii,
    "DQ1-NAME-NESTED": name_nested,
    "DQ1-NAME-TENSOR": name_tensor,
    "DQ1-NAME-LINEAR": name_linear,
}
"""Rules yield what breaks their requirement; the structure checks the rest of the level."""
