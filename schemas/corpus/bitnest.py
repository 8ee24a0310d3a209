"""Cases of `bitnest-package-v1`: structure, origin, norms and rotary embedding."""

from nibblespec.schemas.corpus.cases import Case, Json, Object, case, drop, put

SELF = "model.layers.{}.self_attn"
MLP = "model.layers.{}.mlp"


def layer(rows: int, columns: int, group: int = 128, bias: bool = False) -> Object:
    """Describe a layer of a conforming manifest."""
    return {"shape": [rows, columns], "groups": columns // group, "has_bias": bias}


def decoder(number: int, inner: int = 512, group: int = 128, bias: bool = False) -> Object:
    """Return the seven layers of a decoder layer: width 256, two query heads, one key head."""
    attention, mlp = SELF.format(number), MLP.format(number)
    return {
        f"{attention}.q_proj": layer(256, 256, group, bias),
        f"{attention}.k_proj": layer(128, 256, group, bias),
        f"{attention}.v_proj": layer(128, 256, group, bias),
        f"{attention}.o_proj": layer(256, 256, group),
        f"{mlp}.gate_proj": layer(inner, 256, group),
        f"{mlp}.up_proj": layer(inner, 256, group),
        f"{mlp}.down_proj": layer(256, inner, group),
    }


def manifest(layers: Object, **keys: Json) -> Object:
    """Return a manifest with the least of other keys."""
    least: Object = {
        "format": "bitnest-package-v1",
        "arch": "llama",
        "group_size": 128,
        "pack": "unsigned+8",
        "layers": layers,
        "activation": {"per_layer_group": {}},
        "online_hadamard": {"layers": {}},
    }
    return least | keys


PLAIN = manifest(decoder(0))
DOWN = "model.layers.0.mlp.down_proj"
OUT = "model.layers.0.self_attn.o_proj"
FULL = PLAIN | {
    "model": "tiny",
    "source_model": "meta-llama/Llama-3.2-3B",
    "rotation": "R.bin",
    "weight_planes": {"hi": "q4 + 8", "lo": "qr + 8", "byte_layout": "低 4 位 = 列 2j"},
    "activation": {"scheme": "A8", "per_layer_group": dict.fromkeys(decoder(0), -1) | {OUT: 128}},
    "norms": {"fused": True, "decoder_norms_identity": True, "note": ""},
    "online_hadamard": {"note": "R4", "layers": {DOWN: {"K": 1, "fp32": False}}},
    "kv": {"nesting": "KV4", "per_channel_offset": "none", "r3": "optional"},
    "rope": {
        "theta": 500000.0,
        "scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "max_position_embeddings": 131072,
    },
    "embed_note": "bf16",
    "lm_head_note": "not nested",
    "reference": {"loader": "loader.py", "gpu_runner": "generate.py"},
}

# One case reads better on two lines than on seven.
# fmt: off

def structure() -> list[Case]:
    """Return the cases that the JSON Schema alone decides, and valid ones near them."""
    at = f"/layers/{DOWN}"
    return [
        case("minimal", "Only the required keys.", PLAIN),
        case("full", "Every key that the tables list.", FULL),
        case("integral-floats", "128.0 is the integer 128.", put(PLAIN, 128.0, "group_size")),
        case("rotation-null", "No rotation.", put(FULL, None, "rotation")),
        case("rope-nulls", "As exporters on newer libraries write it.",
             put(put(FULL, None, "rope", "theta"), None, "rope", "scaling")),
        case("human-text", "No reader depends on it.",
             put(FULL, "nobody knows", "kv", "per_channel_offset")),
        case("fp32-absent", "Informative, and optional.",
             drop(FULL, "online_hadamard", "layers", DOWN, "fp32")),
        case("format-v2", "A version that is not known.",
             put(PLAIN, "bitnest-package-v2", "format"), "BN1-FORMAT /format"),
        case("format-null", "No name.", put(PLAIN, None, "format"), "BN1-FORMAT /format"),
        case("format-missing", "No format.", drop(PLAIN, "format"), "BN1-FIELD-REQUIRED "),
        case("group-missing", "No group size.", drop(PLAIN, "group_size"), "BN1-FIELD-REQUIRED "),
        case("per-layer-group-missing", "No activation groups.",
             put(PLAIN, {}, "activation"), "BN1-FIELD-REQUIRED /activation"),
        case("order-missing", "A transform without order.",
             drop(FULL, "online_hadamard", "layers", DOWN, "K"),
             f"BN1-FIELD-REQUIRED /online_hadamard/layers/{DOWN}"),
        case("has-bias-missing", "No word on the bias.", drop(PLAIN, "layers", DOWN, "has_bias"),
             f"BN1-FIELD-REQUIRED {at}"),
        case("group-string", "A string is no integer.", put(PLAIN, "128", "group_size"),
             "BN1-FIELD-TYPE /group_size"),
        case("shape-object", "A shape is an array.", put(PLAIN, {}, "layers", DOWN, "shape"),
             f"BN1-FIELD-TYPE {at}/shape"),
        case("shape-string", "A number in quotes.", put(PLAIN, "256", "layers", DOWN, "shape", 0),
             f"BN1-FIELD-TYPE {at}/shape/0"),
        case("has-bias-number", "0 is no boolean.", put(PLAIN, 0, "layers", DOWN, "has_bias"),
             f"BN1-FIELD-TYPE {at}/has_bias"),
        case("layer-null", "A layer without description.", put(PLAIN, None, "layers", DOWN),
             f"BN1-FIELD-TYPE {at}"),
        case("activation-group-null", "null is not -1.",
             put(FULL, None, "activation", "per_layer_group", DOWN),
             f"BN1-FIELD-TYPE /activation/per_layer_group/{DOWN}"),
        case("note-null", "An optional key is left out, not null.",
             put(FULL, None, "lm_head_note"), "BN1-FIELD-TYPE /lm_head_note"),
        case("theta-string", "A number in quotes.", put(FULL, "5e5", "rope", "theta"),
             "BN1-FIELD-TYPE /rope/theta"),
        case("rotation-number", "A name is a string.", put(FULL, 1, "rotation"),
             "BN1-FIELD-TYPE /rotation"),
        case("shape-of-three", "A shape has two numbers.",
             put(PLAIN, [256, 512, 1], "layers", DOWN, "shape"), f"BN1-FIELD-VALUE {at}/shape"),
        case("shape-of-one", "Not one.", put(PLAIN, [256], "layers", DOWN, "shape"),
             f"BN1-FIELD-VALUE {at}/shape"),
        case("rows-0", "A matrix without rows.", put(PLAIN, 0, "layers", DOWN, "shape", 0),
             f"BN1-FIELD-VALUE {at}/shape/0"),
        case("order-0", "An order of nothing.",
             put(FULL, 0, "online_hadamard", "layers", DOWN, "K"),
             f"BN1-FIELD-VALUE /online_hadamard/layers/{DOWN}/K"),
        case("group-0", "Empty groups.", put(PLAIN, 0, "group_size"),
             "BN1-FIELD-VALUE /group_size"),
        case("arch-other", "An architecture that is not known.", put(PLAIN, "mistral", "arch"),
             "BN1-FIELD-VALUE /arch"),
        case("pack-other", "Another encoding of nibbles.", put(PLAIN, "signed", "pack"),
             "BN1-FIELD-VALUE /pack"),
        case("unknown-key", "A key that is not listed.", put(PLAIN, 1, "exporter_version"),
             "BN1-FIELD-UNKNOWN /exporter_version"),
        case("unknown-key-of-layer", "The same in a layer.", put(PLAIN, 0, "layers", DOWN, "zero"),
             f"BN1-FIELD-UNKNOWN {at}/zero"),
        case("unknown-key-of-rope", "The same in rope, but not in its scaling.",
             put(put(FULL, 1, "rope", "dim"), 1.0, "rope", "scaling", "attention_factor"),
             "BN1-FIELD-UNKNOWN /rope/dim"),
    ]


def origin() -> list[Case]:
    """Return the cases on origin, norms and rotary embedding."""
    def rope(**scaling: Json) -> Object:
        return PLAIN | {"rope": {"scaling": scaling}}

    scaling = "/rope/scaling"
    return [
        case("source-model-path", "A path.", put(FULL, "./llama", "source_model"),
             "BN1-SOURCE-MODEL /source_model"),
        case("source-model-three-parts", "More than owner and name.",
             put(FULL, "a/b/c", "source_model"), "BN1-SOURCE-MODEL /source_model"),
        case("rotation-in-folder", "In a folder of the package.",
             put(FULL, "rotation/R.bin", "rotation")),
        case("rotation-dots-in-name", "Dots that lead nowhere.", put(FULL, "R..bin", "rotation")),
        case("rotation-absolute", "An absolute path.", put(FULL, "/etc/R.bin", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-parent", "A path that leaves.",
             put(FULL, "rotation/../../R.bin", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-backslash", "A path of Windows.", put(FULL, "rotation\\R.bin", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-drive", "A drive of Windows.", put(FULL, "C:R.bin", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-null-character", "An end of C strings.",
             put(FULL, "R.bin\0.txt", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-empty", "No name.", put(FULL, "", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("rotation-trailing-slash", "A folder.", put(FULL, "rotation/", "rotation"),
             "BN1-ROTATION-PATH /rotation"),
        case("norms-stored", "Norms that are not fused, in the file.",
             put(FULL, {"fused": False, "decoder_norms_identity": False}, "norms")),
        case("norms-nowhere", "Norms that are not fused, and not in the file.",
             put(FULL, {"fused": False, "decoder_norms_identity": True}, "norms"),
             "BN1-NORMS-FUSED /norms/decoder_norms_identity"),
        case("rope-linear", "The older key.", rope(type="linear", factor=8.0)),
        case("rope-yarn", "A whole number for a factor.",
             rope(rope_type="yarn", factor=4, original_max_position_embeddings=32768)),
        case("rope-null-inside", "null counts as absent.", rope(rope_type="longrope", factor=None)),
        case("rope-type-unusual", "A kind that the libraries do not know.", rope(rope_type="su"),
             f"BN1-ROPE-TYPE {scaling}/rope_type"),
        case("theta-0", "No base.", put(FULL, 0, "rope", "theta"), "BN1-ROPE-THETA /rope/theta"),
        case("theta-negative", "A negative base.", put(FULL, -10000.0, "rope", "theta"),
             "BN1-ROPE-THETA /rope/theta"),
        case("factor-below-1", "A context cut.", rope(factor=0.5),
             f"BN1-ROPE-FACTOR {scaling}/factor"),
        case("factor-string", "A number in quotes.", rope(factor="8"),
             f"BN1-ROPE-FACTOR {scaling}/factor"),
        case("factor-true", "true is no number.", rope(factor=True),
             f"BN1-ROPE-FACTOR {scaling}/factor"),
        case("bands-exchanged", "The low band above the high one.",
             rope(low_freq_factor=4.0, high_freq_factor=1.0),
             f"BN1-ROPE-BANDS {scaling}/low_freq_factor"),
        case("positions-0", "No positions.", put(FULL, 0, "rope", "max_position_embeddings"),
             "BN1-ROPE-POSITIONS /rope/max_position_embeddings"),
        case("positions-original-fraction", "Half a position.",
             rope(original_max_position_embeddings=0.5),
             f"BN1-ROPE-POSITIONS {scaling}/original_max_position_embeddings"),
    ]
