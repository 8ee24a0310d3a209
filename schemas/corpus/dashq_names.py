"""Cases of `dashq-packed-linear`: names of modules, and modules that belong together."""

import json

from nibblespec.schemas.corpus.cases import Case, Object, case
from nibblespec.schemas.corpus.dashq import MODULES, manifest, module

LAYER = "model.layers.0"
ATTENTION = f"{LAYER}.self_attn"
MLP = f"{LAYER}.mlp"
EXPERTS = f"{MLP}.experts"


def named(*names: str) -> Object:
    """Return a manifest of modules of these names."""
    return manifest({name: module(8, 64) for name in names})


def shaped(parent: str, **shapes: tuple[int, int]) -> Object:
    """Return modules under one parent, each with its rows and columns."""
    return {f"{parent}.{last}": module(*shape) for last, shape in shapes.items()}


def attention(query: int = 128, key: int = 32, value: int = 32, output: int = 128) -> Object:
    """Return the modules of self-attention by their inner widths."""
    return shaped(
        ATTENTION,
        q_proj=(query, 64),
        k_proj=(key, 64),
        v_proj=(value, 64),
        o_proj=(64, output),
    )


def mlp(gate: int = 128, up: int = 128, down: int = 128, parent: str = MLP) -> Object:
    """Return the modules of a gated MLP by their inner widths."""
    return shaped(parent, gate_proj=(gate, 64), up_proj=(up, 64), down_proj=(64, down))


def experts(*numbers: int, parent: str = EXPERTS) -> Object:
    """Return the modules of gated experts in lists."""
    lists: Object = {}
    for number in numbers:
        lists[f"{parent}.gate_up_proj_list.{number}"] = module(128, 64)
        lists[f"{parent}.down_proj_list.{number}"] = module(64, 64)
    return lists


# One case reads better on two lines than on seven.
# fmt: off

def names() -> list[Case]:
    """Return the cases on names."""
    def at(name: str) -> str:
        return f"/{MODULES}/{name}"

    return [
        case("names-plain", "Letters, digits, underscores and hyphens.",
             named("a", "A-1.b_2.0", "transformer.h.0")),
        case("names-common-beginning", "None is inside another.", named("a.b", "a.bc", "a.b-c")),
        case("name-500", "The longest name.", named("a" * 500)),
        case("name-escaped", "A name in escapes is the same name.",
             json.dumps(named("@.b")).replace("@", "\\u0061").encode()),
        case("name-501", "Too long.", named("a" * 501), "DQ1-NAME-LENGTH " + at("a" * 500 + "…")),
        case("name-empty", "No name.", named(""), "DQ1-NAME-SEGMENTS " + at("")),
        case("name-dot-first", "A dot in front.", named(".a"), "DQ1-NAME-SEGMENTS " + at(".a")),
        case("name-dot-last", "A dot at the end.", named("a."), "DQ1-NAME-SEGMENTS " + at("a.")),
        case("name-two-dots", "An empty segment.", named("a..b"),
             "DQ1-NAME-SEGMENTS " + at("a..b")),
        case("name-slash", "A path of files.", named("a/b"), "DQ1-NAME-CHARACTERS " + at("a~1b")),
        case("name-parent-folder", "A path that leaves the folder.", named("../a"),
             "DQ1-NAME-CHARACTERS " + at("..~1a"), "DQ1-NAME-SEGMENTS " + at("..~1a")),
        case("name-backslash", "A path of Windows.", named("a\\b"),
             "DQ1-NAME-CHARACTERS " + at("a\\b")),
        case("name-null-character", "An end of C strings.", named("a\0b"),
             "DQ1-NAME-CHARACTERS " + at("a\0b")),
        case("name-newline", "A trailing newline.", named("a\n"),
             "DQ1-NAME-CHARACTERS " + at("a\n")),
        case("name-c1-control", "A terminal's escape in one character.", named("a\x9bb"),
             "DQ1-NAME-CHARACTERS " + at("a\x9bb")),
        case("name-line-separator", "U+2028.", named("a\u2028b"),
             "DQ1-NAME-CHARACTERS " + at("a\u2028b")),
        case("name-space-first", "A space in front.", named(" a.b"),
             "DQ1-NAME-CHARACTERS " + at(" a.b")),
        case("name-space-inside", "At the edge of a segment.", named("a .b"),
             "DQ1-NAME-CHARACTERS " + at("a .b")),
        case("name-no-break-space", "U+00A0 at the end.", named("a\u00a0"),
             "DQ1-NAME-CHARACTERS " + at("a\u00a0")),
        case("name-space-in-segment", "Legal, and unusual.", named("a b.c"),
             "DQ1-NAME-ASCII " + at("a b.c")),
        case("name-cyrillic", "A letter that looks like another.", named("m\u043edel"),
             "DQ1-NAME-ASCII " + at("m\u043edel")),
        case("name-zero-width", "A character that looks like nothing.", named("a\u200bb"),
             "DQ1-NAME-ASCII " + at("a\u200bb")),
        case("name-nested", "A module inside another.", named("a.b.c", "a.b"),
             "DQ1-NAME-NESTED " + at("a.b.c")),
        case("name-nested-deep", "Two modules inside another.", named("a", "a.b", "a.b.c"),
             "DQ1-NAME-NESTED " + at("a.b"), "DQ1-NAME-NESTED " + at("a.b.c")),
        case("name-weight", "The name of a tensor.", named(f"{MLP}.up_proj.weight"),
             "DQ1-NAME-TENSOR " + at(f"{MLP}.up_proj.weight")),
        case("name-packed", "The name of a tensor of this format.", named("a.W_q_packed"),
             "DQ1-NAME-TENSOR " + at("a.W_q_packed")),
        case("name-lm-head", "The output layer.", named("lm_head"),
             "DQ1-NAME-LINEAR " + at("lm_head")),
        case("name-embedding", "An embedding.", named("model.embed_tokens"),
             "DQ1-NAME-LINEAR " + at("model.embed_tokens")),
        case("name-norm", "A norm.", named(f"{LAYER}.input_layernorm"),
             "DQ1-NAME-LINEAR " + at(f"{LAYER}.input_layernorm")),
    ]


def together() -> list[Case]:
    """Return the cases on modules that belong together."""
    def at(parent: str, last: str, key: str) -> str:
        return f"/{MODULES}/{parent}.{last}/{key}"

    def wide(rows: int, columns: int) -> Object:
        return module(rows, columns)

    here = f"/{MODULES}"
    hybrid = attention() | mlp() | shaped("model.layers.1.linear_attn", in_proj_z=(64, 64))
    two = mlp() | mlp(parent="model.layers.1.mlp")
    return [
        case("attention", "Grouped queries.", manifest(attention())),
        case("attention-gated", "q_proj computes a gate too.", manifest(attention(query=256))),
        case("attention-heads-differ", "Key heads of 48, value heads of 32.",
             manifest(attention(query=192, key=48, value=32, output=128))),
        case("attention-latent", "Query heads of 48, value heads of 32.",
             manifest(shaped(ATTENTION, q_proj=(192, 64), kv_a_proj_with_mqa=(48, 64),
                             kv_b_proj=(256, 32), o_proj=(64, 128)))),
        case("attention-cross", "Keys of another input, outside of self_attn.",
             manifest(shaped(f"{LAYER}.cross_attn", q_proj=(128, 64), k_proj=(32, 96)))),
        case("mlp", "A gated MLP.", manifest(mlp())),
        case("hidden-width", "Attention and MLP read and write one width.",
             manifest(attention() | mlp())),
        case("hidden-width-of-each-layer", "The width of another layer is another matter.",
             manifest(attention() | shaped("model.layers.1.mlp", up_proj=(64, 96)))),
        case("mlp-without-gate", "An MLP of two.",
             manifest(shaped(MLP, up_proj=(128, 64), down_proj=(64, 128)))),
        case("mlp-fused", "Gate and up in one.",
             manifest(shaped(MLP, gate_up_proj=(256, 64), down_proj=(64, 128)))),
        case("experts-lists", "Gated experts.", manifest(experts(0, 1, 2))),
        case("experts-latent", "Experts without gate.",
             manifest({f"{EXPERTS}.up_proj_list.0": wide(96, 32),
                       f"{EXPERTS}.down_proj_list.0": wide(32, 96)})),
        case("experts-numbered", "Experts as modules of their own.",
             manifest(mlp(parent=f"{EXPERTS}.0") | mlp(parent=f"{EXPERTS}.1"))),
        case("layers-hybrid", "Layers of different kinds.", manifest(hybrid)),
        case("layers-two-towers", "Each tower counts for itself.",
             manifest(named("text.layers.0.a", "text.layers.1.a", "image.layers.0.a")[MODULES])),
        case("layers-partly-packed", "down_proj is packed in one layer only.",
             manifest(mlp() | shaped("model.layers.1.mlp", gate_proj=(128, 64), up_proj=(128, 64))),
             f"DQ1-LAYERS-COVERAGE {here}"),
        case("key-value-differ", "A value too narrow.", manifest(attention(value=64)),
             "DQ1-SHAPE-KV " + at(ATTENTION, "v_proj", "out_features")),
        case("key-value-gated", "Twice the rows is a gate, not another width of heads.",
             manifest(attention(query=256, value=16)),
             "DQ1-SHAPE-KV " + at(ATTENTION, "v_proj", "out_features")),
        case("output-too-wide", "o_proj takes more than there is.", manifest(attention(output=192)),
             "DQ1-SHAPE-QO " + at(ATTENTION, "o_proj", "in_features")),
        case("output-third", "Three times is neither once nor twice.",
             manifest(attention(query=384)),
             "DQ1-SHAPE-QO " + at(ATTENTION, "o_proj", "in_features")),
        case("heads-not-whole", "4 query heads for 3 key heads.",
             manifest(attention(key=96, value=96)),
             "DQ1-SHAPE-HEADS " + at(ATTENTION, "q_proj", "out_features")),
        case("attention-input", "Rows and columns exchanged.",
             manifest(attention() | {f"{ATTENTION}.k_proj": wide(32, 32)}),
             "DQ1-SHAPE-ATTENTION-INPUT " + at(ATTENTION, "k_proj", "in_features"),
             "DQ1-SHAPE-HIDDEN " + at(ATTENTION, "k_proj", "in_features")),
        case("gate-up-differ", "A gate for another width.", manifest(mlp(gate=96)),
             "DQ1-SHAPE-GATE-UP " + at(MLP, "up_proj", "out_features")),
        case("gate-up-inputs-differ", "A gate of another input.",
             manifest(mlp() | {f"{MLP}.gate_proj": wide(128, 32)}),
             "DQ1-SHAPE-MLP-INPUT " + at(MLP, "up_proj", "in_features"),
             "DQ1-SHAPE-HIDDEN " + at(MLP, "gate_proj", "in_features")),
        case("down-differs", "down_proj takes more than there is.", manifest(mlp(down=160)),
             "DQ1-SHAPE-DOWN " + at(MLP, "down_proj", "in_features")),
        case("down-of-fused", "The whole of a fused layer instead of half of it.",
             manifest(shaped(MLP, gate_up_proj=(256, 64), down_proj=(64, 256))),
             "DQ1-SHAPE-DOWN " + at(MLP, "down_proj", "in_features")),
        case("hidden-width-exchanged", "Inputs and outputs of the MLP are exchanged.",
             manifest(attention() | shaped(MLP, gate_proj=(64, 128), up_proj=(64, 128),
                                           down_proj=(128, 64))),
             "DQ1-SHAPE-HIDDEN " + at(MLP, "gate_proj", "in_features"),
             "DQ1-SHAPE-HIDDEN " + at(MLP, "up_proj", "in_features"),
             "DQ1-SHAPE-HIDDEN " + at(MLP, "down_proj", "out_features")),
        case("experts-widths-differ", "An expert takes the gate too.",
             manifest(experts(0) | {f"{EXPERTS}.down_proj_list.0": wide(64, 128)}),
             "DQ1-SHAPE-EXPERTS " + at(EXPERTS, "down_proj_list.0", "in_features")),
        case("experts-latent-differ", "Without a gate there is no half.",
             manifest({f"{EXPERTS}.up_proj_list.0": wide(96, 32),
                       f"{EXPERTS}.down_proj_list.0": wide(32, 192)}),
             "DQ1-SHAPE-EXPERTS " + at(EXPERTS, "down_proj_list.0", "in_features")),
        case("experts-gap", "Expert 1 is missing.", manifest(experts(0, 2)),
             f"DQ1-EXPERTS-COMPLETE {here}"),
        case("experts-lists-disagree", "The last expert has no down_proj.",
             manifest(experts(0) | {f"{EXPERTS}.gate_up_proj_list.1": wide(128, 64)}),
             f"DQ1-EXPERTS-COMPLETE {here}"),
        case("experts-numbered-gap", "Expert 0 is missing.", manifest(mlp(parent=f"{EXPERTS}.1")),
             f"DQ1-EXPERTS-COMPLETE {here}"),
        case("layers-gap", "Layer 1 is missing.",
             manifest(two | mlp(parent="model.layers.3.mlp") | mlp(parent="model.layers.4.mlp")),
             f"DQ1-LAYERS-CONTIGUOUS {here}"),
        case("layers-without-first", "Layer 0 is missing.", named("model.layers.1.a"),
             f"DQ1-LAYERS-CONTIGUOUS {here}"),
    ]
