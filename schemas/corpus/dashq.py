"""Cases of `dashq-packed-linear`: structure, origin, and single modules."""

from nibblespec.schemas.corpus.cases import Case, Json, Object, case, drop, put

MODULES = "quantized_modules"
NAME = "model.layers.0.mlp.down_proj"
AT = f"/{MODULES}/{NAME}"
HERE = (MODULES, NAME)

PARAMS: Object = {
    "bits": 4,
    "group_size": 32,
    "scale_zero_dtype": "float16",
    "symmetric": False,
    "n_samples": 128,
    "moe_hessian_scope": "shared",
    "use_error_compensation": True,
    "use_optimal_shrinkage": True,
    "use_weighted_quantization": True,
    "low_memory_optimization": False,
}

SCORES: Object = {
    "arc_challenge": 55.0,
    "arc_easy": 74.5,
    "commonsense_qa": 82.25,
    "hellaswag": 77.0,
    "lambada_openai": 70.5,
    "openbookqa": 42.0,
    "piqa": 80.0,
    "truthfulqa_mc2": 53.25,
    "winogrande": 71.0,
}
"""Nine results whose sum is 605.5."""


def module(rows: int, columns: int, nbits: int = 4, group: int = 32, **changes: Json) -> Object:
    """Describe a module of a conforming manifest."""
    described: Object = {
        "nbits": nbits,
        "group_size": group,
        "in_features": columns,
        "out_features": rows,
        "quant_in_features": columns,
        "num_groups": rows * columns // group,
        "packing": f"int{nbits}_packed_u32",
        "scale_zero_dtype": "float16",
        "linear_dtype": "bfloat16",
    }
    return described | changes


def manifest(modules: Object, **keys: Json) -> Object:
    """Return a manifest with the least of other keys."""
    identity: Object = {"format": "dashq-packed-linear", "format_version": 1}
    return identity | keys | {MODULES: modules}


def one(**changes: Json) -> Object:
    """Return a manifest of one module, 8 rows of 64 columns, with changes to its description."""
    return manifest({NAME: module(8, 64, **changes)})


PLAIN = one()
FULL = manifest(
    {NAME: module(8, 64, runtime_backend="torch")},
    method="dashq",
    base_model="Qwen/Qwen3.5-9B",
    model_class="causal_lm",
    params=PARAMS,
    results={**SCORES, "zeroshot_avg": 605.5 / 9, "Params": repr(PARAMS), "PPL": 8.678},
)


# One case reads better on two lines than on seven.
# fmt: off

def structure() -> list[Case]:
    """Return the cases that the JSON Schema alone decides, and valid ones near them."""
    return [
        case("minimal", "Only the three required keys.", PLAIN),
        case("full", "Every key that the tables list.", FULL),
        case("integral-floats", "4.0 is the integer 4.",
             put(one(out_features=8.0), 4.0, *HERE, "nbits")),
        case("version-as-float", "1.0 is the number 1.", put(PLAIN, 1.0, "format_version")),
        case("quant-in-absent", "Absent means in_features.",
             drop(PLAIN, *HERE, "quant_in_features")),
        case("results-anything", "Results are free.", put(PLAIN, {"a": [None, {}]}, "results")),
        case("params-extra", "So is params.", put(FULL, PARAMS | {"seed": 7}, "params")
             | {"results": {}}),
        case("params-empty", "No key of params is required.", put(PLAIN, {}, "params")),
        case("format-other", "A misspelt format.", put(PLAIN, "dashq-packed-linear-v1", "format"),
             "DQ1-FORMAT /format"),
        case("format-case", "The format in capitals.", put(PLAIN, "DASHQ-PACKED-LINEAR", "format"),
             "DQ1-FORMAT /format"),
        case("format-number", "The format is a number.", put(PLAIN, 1, "format"),
             "DQ1-FORMAT /format"),
        case("format-missing", "No format.", drop(PLAIN, "format"), "DQ1-FIELD-REQUIRED "),
        case("version-99", "A version that is not known.", put(PLAIN, 99, "format_version"),
             "DQ1-FORMAT-VERSION /format_version"),
        case("version-true", "true is no number.", put(PLAIN, True, "format_version"),
             "DQ1-FORMAT-VERSION /format_version"),
        case("version-string", "Nor is a string.", put(PLAIN, "1", "format_version"),
             "DQ1-FORMAT-VERSION /format_version"),
        case("version-missing", "No version.", drop(PLAIN, "format_version"),
             "DQ1-FIELD-REQUIRED "),
        case("modules-missing", "No modules.", drop(PLAIN, MODULES), "DQ1-FIELD-REQUIRED "),
        case("modules-list", "Modules in a list.", put(PLAIN, [], MODULES),
             f"DQ1-FIELD-TYPE /{MODULES}"),
        case("module-null", "A module without description.", put(PLAIN, None, *HERE),
             f"DQ1-FIELD-TYPE {AT}"),
        case("module-empty", "Every required key is missing.", put(PLAIN, {}, *HERE),
             f"DQ1-FIELD-REQUIRED {AT}"),
        case("packing-missing", "One required key is missing.", drop(PLAIN, *HERE, "packing"),
             f"DQ1-FIELD-REQUIRED {AT}"),
        case("nbits-string", "A string is no integer.", one(nbits="4", packing="int4_packed_u32"),
             f"DQ1-FIELD-TYPE {AT}/nbits"),
        case("nbits-fraction", "4.5 is no integer.", put(PLAIN, 4.5, *HERE, "nbits"),
             f"DQ1-FIELD-TYPE {AT}/nbits"),
        case("group-true", "true is no integer.", put(PLAIN, True, *HERE, "group_size"),
             f"DQ1-FIELD-TYPE {AT}/group_size"),
        case("packing-number", "packing is a number.", put(PLAIN, 4, *HERE, "packing"),
             f"DQ1-FIELD-TYPE {AT}/packing"),
        case("quant-in-null", "An optional key is left out, not null.",
             put(PLAIN, None, *HERE, "quant_in_features"),
             f"DQ1-FIELD-TYPE {AT}/quant_in_features"),
        case("method-null", "The same of a string.", put(FULL, None, "method"),
             "DQ1-FIELD-TYPE /method"),
        case("results-list", "Results are an object.", put(PLAIN, [1], "results"),
             "DQ1-FIELD-TYPE /results"),
        case("symmetric-number", "0 is no boolean.", put(FULL, 0, "params", "symmetric"),
             "DQ1-FIELD-TYPE /params/symmetric"),
        case("nbits-0", "No bits.", put(PLAIN, 0, *HERE, "nbits"),
             f"DQ1-FIELD-VALUE {AT}/nbits"),
        case("nbits-9", "Too many bits.", put(PLAIN, 9, *HERE, "nbits"),
             f"DQ1-FIELD-VALUE {AT}/nbits"),
        case("group-0", "Empty groups.", put(PLAIN, 0, *HERE, "group_size"),
             f"DQ1-FIELD-VALUE {AT}/group_size"),
        case("group-negative", "-1 does not stand for a whole row.",
             put(PLAIN, -1, *HERE, "group_size"), f"DQ1-FIELD-VALUE {AT}/group_size"),
        case("rows-0", "A matrix without rows.", put(PLAIN, 0, *HERE, "out_features"),
             f"DQ1-FIELD-VALUE {AT}/out_features"),
        case("model-class-other", "A class that is not known.",
             put(FULL, "seq2seq_lm", "model_class"), "DQ1-FIELD-VALUE /model_class"),
        case("several", "All is reported, not the first.",
             put(put(one(nbits=9), 2, "format_version"), "8", *HERE, "in_features"),
             "DQ1-FORMAT-VERSION /format_version", f"DQ1-FIELD-VALUE {AT}/nbits",
             f"DQ1-FIELD-TYPE {AT}/in_features"),
        case("unknown-key", "A key that is not listed.", put(PLAIN, "me", "producer"),
             "DQ1-FIELD-UNKNOWN /producer"),
        case("unknown-key-of-module", "The same in a module.", one(layer_norm=False),
             f"DQ1-FIELD-UNKNOWN {AT}/layer_norm"),
        case("misspelt-key", "A misspelt optional key looks like that.",
             put(drop(PLAIN, *HERE, "quant_in_features"), 64, *HERE, "quant_in_feature"),
             f"DQ1-FIELD-UNKNOWN {AT}/quant_in_feature"),
    ]


def origin() -> list[Case]:
    """Return the cases on identity, params and results."""
    mean = 605.5 / 9
    two = {NAME: module(48, 64), "model.layers.0.mlp.up_proj": module(64, 48, group=16)}
    return [
        case("method-other", "Another method.", put(FULL, "gptq", "method"), "DQ1-METHOD /method"),
        case("base-model-plain", "An id without owner.", put(FULL, "gpt2.v1_x-y", "base_model")),
        case("base-model-path", "A path.", put(FULL, "/data/models/Qwen", "base_model"),
             "DQ1-BASE-MODEL /base_model"),
        case("base-model-empty", "Nothing.", put(FULL, "", "base_model"),
             "DQ1-BASE-MODEL /base_model"),
        case("base-model-dots", "A relative path.", put(FULL, "../Qwen", "base_model"),
             "DQ1-BASE-MODEL /base_model"),
        case("base-model-url", "An address.", put(FULL, "https://hub/a/b", "base_model"),
             "DQ1-BASE-MODEL /base_model"),
        case("model-class-of-language-model", "A text model inside a model for images.",
             manifest({"model.language_model.layers.0.mlp.down_proj": module(8, 64)},
                      model_class="image_text_to_text")),
        case("model-class-absent", "Absent means causal_lm, which lacks such modules.",
             manifest({"model.language_model.layers.0.mlp.down_proj": module(8, 64)}),
             "DQ1-MODEL-CLASS "),
        case("model-class-wrong", "The same, said.",
             manifest({"model.language_model.layers.0.mlp.down_proj": module(8, 64)},
                      model_class="causal_lm"),
             "DQ1-MODEL-CLASS /model_class"),
        case("modules-empty", "Nothing is packed.", manifest({}),
             f"DQ1-MODULES-PRESENT /{MODULES}"),
        case("modules-empty-with-params", "Nothing that params could describe.",
             manifest({}, params=PARAMS), f"DQ1-MODULES-PRESENT /{MODULES}"),
        case("params-bits", "No module has these bits.", put(PLAIN, {"bits": 3}, "params"),
             "DQ1-PARAMS-UNUSED /params/bits"),
        case("params-group", "No module has this group.", put(PLAIN, {"group_size": 64}, "params"),
             "DQ1-PARAMS-UNUSED /params/group_size"),
        case("params-dtype", "No module has this dtype.",
             put(PLAIN, {"scale_zero_dtype": "bfloat16"}, "params"),
             "DQ1-PARAMS-UNUSED /params/scale_zero_dtype"),
        case("params-alias", "Two names of one dtype.",
             put(PLAIN, {"scale_zero_dtype": "torch.half"}, "params")),
        case("params-fallback", "A smaller group where the asked one does not divide the width.",
             manifest(two, params={"group_size": 32}),
             f"DQ1-PARAMS-DIFFER /{MODULES}/model.layers.0.mlp.up_proj/group_size"),
        case("params-mixed-widths", "Some modules have more bits.",
             manifest({NAME: module(32, 64), "model.layers.0.mlp.up_proj": module(64, 32, nbits=6)},
                      params={"bits": 4}),
             f"DQ1-PARAMS-DIFFER /{MODULES}/model.layers.0.mlp.up_proj/nbits"),
        case("mean-rounded", "To two decimals.", put(FULL, 67.28, "results", "zeroshot_avg")),
        case("mean-rounded-sum", "Another order of summation.",
             put(FULL, mean * (1 + 2**-50), "results", "zeroshot_avg")),
        case("mean-partial", "A task is missing: no mean to compare with.",
             put(drop(FULL, "results", "piqa"), 1.0, "results", "zeroshot_avg")),
        case("mean-null", "An evaluation that failed.", put(FULL, None, "results", "piqa")),
        case("mean-wrong", "The mean of other results.",
             put(FULL, mean + 0.01, "results", "zeroshot_avg"),
             "DQ1-RESULTS-MEAN /results/zeroshot_avg"),
        case("mean-of-changed-task", "A task from another run.", put(FULL, 81, "results", "piqa"),
             "DQ1-RESULTS-MEAN /results/zeroshot_avg"),
        case("mean-overflow", "A sum beyond float64; its mean is within.",
             put(PLAIN, dict.fromkeys(SCORES, 1.7e308) | {"zeroshot_avg": 1.7e308}, "results")),
        case("params-copy-quotes", "Double quotes and free order.",
             put(PLAIN, {"bits": 4, "group_size": 32}, "params")
             | {"results": {"Params": '{"group_size": 32, "bits": 4}'}}),
        case("params-copy-unreadable", "A text that is no dictionary.",
             put(FULL, "bits=8", "results", "Params")),
        case("params-copy-code", "Code, which nobody evaluates.",
             put(FULL, "{'bits': __import__('os')}", "results", "Params")),
        case("params-copy-differs", "A value from another run.",
             put(FULL, repr(PARAMS | {"n_samples": 64}), "results", "Params"),
             "DQ1-RESULTS-PARAMS /results/Params"),
        case("params-copy-boolean", "True is not 1.",
             put(FULL, repr(PARAMS | {"use_error_compensation": 1}), "results", "Params"),
             "DQ1-RESULTS-PARAMS /results/Params"),
        case("params-copy-short", "A key is missing.",
             put(FULL, "{'bits': 4}", "results", "Params"), "DQ1-RESULTS-PARAMS /results/Params"),
    ]


def modules() -> list[Case]:
    """Return the cases on the description of one module."""
    widths: Object = {f"model.layers.0.mlp.part{b}": module(3, 32, nbits=b) for b in range(1, 9)}
    dtypes: Object = {
        f"model.layers.0.mlp.{dtype}": module(3, 32, scale_zero_dtype=dtype)
        for dtype in ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
    }
    large = module(2**32, 2**31, group=2**31)
    return [
        case("all-widths", "1 to 8 bits.", manifest(widths)),
        case("all-dtypes", "All dtypes of scales.", manifest(dtypes)),
        case("linear-dtypes", "Layers in float16 and float32.",
             manifest({"a": module(3, 32, linear_dtype="float16"),
                       "b": module(3, 32, linear_dtype="float32")})),
        case("group-of-one", "Each code with its own scale.", one(group=1)),
        case("group-of-a-row", "One scale for each row.", one(group=64)),
        case("one-weight", "The smallest matrix.", manifest({"a": module(1, 1, group=1)})),
        case("odd-sizes", "Words that straddle rows and groups.",
             manifest({"a": module(7, 33, nbits=3, group=11)})),
        case("large", "2^62 bytes of words.", manifest({"a": large})),
        case("packing-bits", "The packing of another width.", one(packing="int8_packed_u32"),
             f"DQ1-MODULE-PACKING {AT}/packing"),
        case("packing-name", "A packing of another library.", one(packing="int4_packed_i32"),
             f"DQ1-MODULE-PACKING {AT}/packing"),
        case("packing-zero", "The width in decimal, without zeros.",
             one(packing="int04_packed_u32"),
             f"DQ1-MODULE-PACKING {AT}/packing"),
        case("packing-space", "A stray space.", one(packing="int4_packed_u32 "),
             f"DQ1-MODULE-PACKING {AT}/packing"),
        case("padded", "Padding is legal, but not for everybody.",
             one(in_features=60), f"DQ1-MODULE-PADDED {AT}/quant_in_features"),
        case("cropped", "Columns are missing.", one(in_features=96),
             f"DQ1-MODULE-QUANT-IN {AT}/quant_in_features"),
        case("straddling-groups", "The count fits, but groups run over the ends of rows.",
             manifest({NAME: module(2, 48)}), f"DQ1-MODULE-GROUP-SIZE {AT}/group_size"),
        case("group-too-wide", "A group wider than a row.",
             manifest({NAME: module(2, 64, group=128)}), f"DQ1-MODULE-GROUP-SIZE {AT}/group_size"),
        case("group-does-not-divide", "192 columns in groups of 128.",
             manifest({NAME: module(3, 192, group=128)}), f"DQ1-MODULE-GROUP-SIZE {AT}/group_size"),
        case("groups-of-a-row", "The count of one row, as bitnest has it.", one(num_groups=2),
             f"DQ1-MODULE-GROUPS {AT}/num_groups"),
        case("groups-off-by-one", "One too many.", one(num_groups=17),
             f"DQ1-MODULE-GROUPS {AT}/num_groups"),
        case("groups-without-padding", "Groups of the padding count too.",
             one(in_features=32, num_groups=8),
             f"DQ1-MODULE-GROUPS {AT}/num_groups", f"DQ1-MODULE-PADDED {AT}/quant_in_features"),
        case("groups-of-quant-in-absent", "The default takes part.",
             put(drop(PLAIN, *HERE, "quant_in_features"), 8, *HERE, "num_groups"),
             f"DQ1-MODULE-GROUPS {AT}/num_groups"),
        case("too-large-codes", "2^63 bytes of words.",
             manifest({NAME: module(2**32, 2**32, group=2**31)}), f"DQ1-MODULE-SIZE {AT}"),
        case("too-large-one-bit", "The same with 32 codes to a word.",
             manifest({NAME: module(2**34, 2**32, nbits=1, group=2**31)}),
             f"DQ1-MODULE-SIZE {AT}"),
        case("too-large-scales", "2^63 bytes of scales, counted in a number that is not exact.",
             manifest({NAME: module(2**31, 2**30, 1, 1, scale_zero_dtype="float32")}),
             f"DQ1-MODULE-SIZE {AT}", f"JSON-INTEGER-EXACT {AT}/num_groups"),
        case("scale-dtype-unknown", "A name that nobody knows.",
             one(scale_zero_dtype="float8_e4m3"),
             f"DQ1-MODULE-SCALE-DTYPE {AT}/scale_zero_dtype"),
        case("scale-dtype-integer", "An integer zero point.", one(scale_zero_dtype="int8"),
             f"DQ1-MODULE-SCALE-DTYPE {AT}/scale_zero_dtype"),
        case("scale-dtype-empty", "Nothing.", one(scale_zero_dtype=""),
             f"DQ1-MODULE-SCALE-DTYPE {AT}/scale_zero_dtype"),
        case("linear-dtype-fp8", "No layer is computed in 8 bits.", one(linear_dtype="float8_e5m2"),
             f"DQ1-MODULE-LINEAR-DTYPE {AT}/linear_dtype"),
        case("linear-dtype-alias-fp8", "Under no name.", one(linear_dtype="fp8"),
             f"DQ1-MODULE-LINEAR-DTYPE {AT}/linear_dtype"),
        case("linear-dtype-unknown", "A name that nobody knows.", one(linear_dtype="float64"),
             f"DQ1-MODULE-LINEAR-DTYPE {AT}/linear_dtype"),
        case("dtype-alias", "Aliases that readers take.",
             one(scale_zero_dtype="half", linear_dtype="bf16"),
             f"DQ1-MODULE-DTYPE-NAME {AT}/scale_zero_dtype",
             f"DQ1-MODULE-DTYPE-NAME {AT}/linear_dtype"),
        case("dtype-prefix", "The prefix of a library.", one(linear_dtype="torch.bfloat16"),
             f"DQ1-MODULE-DTYPE-NAME {AT}/linear_dtype"),
        case("dtype-capitals", "Capitals.", one(scale_zero_dtype="Float16"),
             f"DQ1-MODULE-DTYPE-NAME {AT}/scale_zero_dtype"),
        case("dtype-bare-fp8", "It means e5m2.", one(scale_zero_dtype="fp8"),
             f"DQ1-MODULE-DTYPE-NAME {AT}/scale_zero_dtype"),
        case("dtype-fp8-e4m3", "An alias of float8_e4m3fn.", one(scale_zero_dtype="fp8_e4m3"),
             f"DQ1-MODULE-DTYPE-NAME {AT}/scale_zero_dtype"),
        case("fault-in-every-module", "Each is reported.",
             manifest({"a": module(8, 64, num_groups=2), "b": module(8, 64, num_groups=2)}),
             f"DQ1-MODULE-GROUPS /{MODULES}/a/num_groups",
             f"DQ1-MODULE-GROUPS /{MODULES}/b/num_groups"),
    ]
