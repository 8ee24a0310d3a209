"""Cases of `bitnest-package-v1`: layers, their inputs, and their names."""

from nibblespec.schemas.corpus.bitnest import (
    DOWN,
    FULL,
    MLP,
    OUT,
    PLAIN,
    SELF,
    decoder,
    layer,
    manifest,
)
from nibblespec.schemas.corpus.cases import Case, Json, Object, case, drop, put

TWO = manifest(decoder(0) | decoder(1))
QUERY, KEY, VALUE = (f"{SELF.format(0)}.{last}_proj" for last in "qkv")
GATE, UP = f"{MLP.format(0)}.gate_proj", f"{MLP.format(0)}.up_proj"


def with_layer(name: str, described: Object, base: Object = PLAIN) -> Object:
    """Copy a manifest with another description of a layer."""
    return put(base, described, "layers", name)


def with_groups(base: Object = PLAIN, **widths: Json) -> Object:
    """Copy a manifest with activation groups; the names are those of this module."""
    names = {"down": DOWN, "out": OUT, "gone": "model.layers.9.mlp.up_proj"}
    groups = {names[key]: width for key, width in widths.items()}
    return put(base, groups, "activation", "per_layer_group")


def with_order(order: int, inner: int) -> Object:
    """Return a manifest whose down_proj has a transform of an order."""
    return manifest(decoder(0, inner), online_hadamard={"layers": {DOWN: {"K": order}}})


def inner(width: int, groups: int) -> Object:
    """Return a decoder layer of another inner width of the MLP, and that many groups."""
    return decoder(0, width) | {DOWN: {"shape": [256, width], "groups": groups, "has_bias": False}}


def tiny(width: int, group: int) -> Object:
    """Return a decoder layer of width 6, with an inner width of the MLP."""
    shapes = dict.fromkeys(decoder(0), (6, 6)) | {
        GATE: (width, 6),
        UP: (width, 6),
        DOWN: (6, width),
    }
    return {name: layer(*shape, group) for name, shape in shapes.items()}


# One case reads better on two lines than on seven.
# fmt: off

def sizes() -> list[Case]:
    """Return the cases on sizes of layers, and on which there are."""
    at = f"/layers/{DOWN}"
    head: Object = {"lm_head": layer(1000, 256)}
    small = drop(TWO, "layers", "model.layers.1.mlp.up_proj")
    return [
        case("head-nested", "A nested output layer.", manifest(decoder(0) | head)),
        case("two-layers", "Two decoder layers.", TWO),
        case("group-64", "Legal, but not for published GPU kernels.",
             manifest(decoder(0, group=64), group_size=64), "BN1-GROUP-SIZE-KERNELS /group_size"),
        case("group-odd", "A byte with codes of two groups.",
             manifest(tiny(6, 3), group_size=3),
             "BN1-GROUP-SIZE-KERNELS /group_size"),
        case("columns-odd", "A byte with columns of two rows.",
             manifest(tiny(7, 1), group_size=1),
             f"BN1-LAYER-EVEN {at}/shape/1", "BN1-GROUP-SIZE-KERNELS /group_size"),
        case("group-does-not-divide", "192 columns in groups of 128.",
             manifest(inner(192, 1)), f"BN1-LAYER-GROUP-SIZE {at}/shape/1"),
        case("group-too-wide", "64 columns in groups of 128.",
             manifest(inner(64, 1)), f"BN1-LAYER-GROUP-SIZE {at}/shape/1"),
        case("groups-of-the-matrix", "The count of the whole matrix, as dashq has it.",
             put(PLAIN, 1024, "layers", DOWN, "groups"), f"BN1-LAYER-GROUPS {at}/groups"),
        case("groups-along-n", "Groups along the other axis.",
             put(PLAIN, 2, "layers", DOWN, "groups"), f"BN1-LAYER-GROUPS {at}/groups"),
        case("groups-of-another-size", "Groups of 64.", put(PLAIN, 8, "layers", DOWN, "groups"),
             f"BN1-LAYER-GROUPS {at}/groups"),
        case("large", "2^59 bytes in a plane.",
             manifest(decoder(0) | {"lm_head": layer(2**52, 256)})),
        case("too-large", "2^63 bytes in a plane.",
             manifest(inner(2**52, 2**45) | {DOWN: layer(2**12, 2**52)}),
             f"BN1-LAYER-SIZE {at}", f"BN1-SHAPE-HIDDEN {at}/shape/0"),
        case("too-large-matrix", "2^64 bytes in had_K.",
             put(manifest(inner(2**31, 2**24)), {DOWN: {"K": 2**31}}, "online_hadamard", "layers"),
             f"BN1-LAYER-SIZE /online_hadamard/layers/{DOWN}/K"),
        case("layers-empty", "No layer.", manifest({}), "BN1-LAYERS-PRESENT /layers"),
        case("layers-head-only", "An output layer alone.", manifest(head),
             "BN1-LAYERS-PRESENT /layers"),
        case("layer-missing", "A decoder layer without up_proj.", small,
             "BN1-LAYERS-COMPLETE /layers"),
        case("down-only", "A decoder layer of one.", manifest({DOWN: layer(256, 512)}),
             "BN1-LAYERS-COMPLETE /layers"),
        case("layers-gap", "Decoder layer 1 is missing.", manifest(decoder(0) | decoder(2)),
             "BN1-LAYERS-CONTIGUOUS /layers"),
        case("layers-without-first", "Decoder layer 0 is missing.", manifest(decoder(1)),
             "BN1-LAYERS-CONTIGUOUS /layers"),
    ]


def together() -> list[Case]:
    """Return the cases on layers that belong together."""
    qwen = manifest(decoder(0, bias=True), arch="qwen2")
    biased = {name: described | {"has_bias": True} for name, described in decoder(1).items()}
    return [
        case("qwen2", "Biases where qwen2 has them.", qwen),
        case("llama-biases", "Rare, and legal.",
             manifest(decoder(0, bias=True)),
             f"BN1-BIAS-LLAMA /layers/{QUERY}/has_bias", f"BN1-BIAS-LLAMA /layers/{KEY}/has_bias",
             f"BN1-BIAS-LLAMA /layers/{VALUE}/has_bias"),
        case("key-value-differ", "A value too wide.", with_layer(VALUE, layer(256, 256)),
             f"BN1-SHAPE-KV /layers/{VALUE}/shape/0"),
        case("output-differs", "o_proj takes more than there is.", with_layer(OUT, layer(256, 512)),
             f"BN1-SHAPE-QO /layers/{OUT}/shape/1"),
        case("output-gated", "No gate in these architectures.",
             with_layer(QUERY, layer(512, 256)), f"BN1-SHAPE-QO /layers/{OUT}/shape/1"),
        case("heads-not-whole", "Two query heads of 128, key heads of 192 in all.",
             with_layer(KEY, layer(192, 256), with_layer(VALUE, layer(192, 256))),
             f"BN1-SHAPE-HEADS /layers/{QUERY}/shape/0"),
        case("gate-up-differ", "A gate for another width.", with_layer(GATE, layer(384, 256)),
             f"BN1-SHAPE-GATE-UP /layers/{UP}/shape/0"),
        case("down-differs", "down_proj takes more than there is.",
             with_layer(DOWN, layer(256, 640)), f"BN1-SHAPE-DOWN /layers/{DOWN}/shape/1"),
        case("width-differs", "A layer of another model.", with_layer(UP, layer(512, 384)),
             f"BN1-SHAPE-HIDDEN /layers/{UP}/shape/1"),
        case("width-of-rows", "The same of rows.", with_layer(DOWN, layer(384, 512)),
             f"BN1-SHAPE-HIDDEN /layers/{DOWN}/shape/0"),
        case("width-of-head", "An output layer of another model.",
             manifest(decoder(0) | {"lm_head": layer(1000, 384)}),
             "BN1-SHAPE-HIDDEN /layers/lm_head/shape/1"),
        case("qwen2-without-bias", "A bias was lost.",
             put(qwen, False, "layers", KEY, "has_bias"), f"BN1-BIAS-QWEN2 /layers/{KEY}/has_bias"),
        case("qwen2-with-bias", "A bias where there is none.",
             put(qwen, True, "layers", OUT, "has_bias"), f"BN1-BIAS-QWEN2 /layers/{OUT}/has_bias"),
        case("biases-differ", "A bias in one decoder layer of three.",
             manifest(decoder(0) | decoder(1) | decoder(2)
                      | {"model.layers.1.mlp.up_proj": biased["model.layers.1.mlp.up_proj"]}),
             "BN1-BIAS-UNIFORM /layers/model.layers.1.mlp.up_proj/has_bias",
             "BN1-BIAS-LLAMA /layers/model.layers.1.mlp.up_proj/has_bias"),
    ]


def inputs() -> list[Case]:
    """Return the cases on activation groups and Hadamard transforms."""
    groups = "/activation/per_layer_group"
    transforms = "/online_hadamard/layers"
    gone = "model.layers.9.mlp.up_proj"
    second = "model.layers.1.mlp.down_proj"
    three = manifest(decoder(0) | decoder(1) | decoder(2))
    outs = {f"{SELF.format(number)}.o_proj": 128 for number in (0, 1, 2)}
    return [
        case("activation-group-of-a-row", "A group as wide as K.", with_groups(down=512)),
        case("activation-group-other", "Another width than that of weights.", with_groups(down=64)),
        case("activation-layer-unknown", "A layer that is not there.", with_groups(gone=-1),
             f"BN1-ACTIVATION-LAYERS {groups}/{gone}"),
        case("activation-group-0", "No columns.", with_groups(down=0),
             f"BN1-ACTIVATION-GROUP {groups}/{DOWN}"),
        case("activation-group-minus-2", "-1 is the only negative one.", with_groups(down=-2),
             f"BN1-ACTIVATION-GROUP {groups}/{DOWN}"),
        case("activation-group-does-not-divide", "512 columns in groups of 96.",
             with_groups(down=96), f"BN1-ACTIVATION-GROUP {groups}/{DOWN}"),
        case("activation-group-too-wide", "Wider than K.", with_groups(down=1024),
             f"BN1-ACTIVATION-GROUP {groups}/{DOWN}"),
        case("activation-head", "256 columns: two heads, where keys have one.",
             with_groups(out=256), f"BN1-ACTIVATION-HEAD {groups}/{OUT}"),
        case("activation-uniform", "Three decoder layers alike.",
             put(three, outs, "activation", "per_layer_group")),
        case("activation-forgotten", "Absence means -1, unlike in the other layers.",
             put(three, drop(outs, OUT), "activation", "per_layer_group"),
             f"BN1-ACTIVATION-UNIFORM /layers/{OUT}"),
        case("activation-differs", "One decoder layer of three.",
             put(three, outs | {OUT: -1}, "activation", "per_layer_group"),
             f"BN1-ACTIVATION-UNIFORM {groups}/{OUT}"),
        case("hadamard-power-of-two", "Walsh and Hadamard.", with_order(1, 512)),
        case("hadamard-28", "14336 = 28 · 512.", with_order(28, 14336)),
        case("hadamard-172", "11008 = 172 · 64.", with_order(172, 11008)),
        case("hadamard-148", "18944 = 148 · 128.", with_order(148, 18944)),
        case("hadamard-large", "2^62 bytes in had_K.", with_order(2**30, 2**30)),
        case("hadamard-whole-width", "k = 0.", with_order(384, 384)),
        case("hadamard-layer-unknown", "A layer that is not there.",
             put(PLAIN, {gone: {"K": 1}}, "online_hadamard", "layers"),
             f"BN1-HADAMARD-LAYERS {transforms}/{gone}"),
        case("hadamard-not-a-power", "14336 is no power of two.", with_order(1, 14336),
             f"BN1-HADAMARD-WIDTH {transforms}/{DOWN}/K"),
        case("hadamard-does-not-divide", "11008 is no multiple of 28.", with_order(28, 11008),
             f"BN1-HADAMARD-WIDTH {transforms}/{DOWN}/K"),
        case("hadamard-too-wide", "An order beyond the width.", with_order(1024, 512),
             f"BN1-HADAMARD-WIDTH {transforms}/{DOWN}/K"),
        case("hadamard-in-all-layers", "Two decoder layers alike.",
             put(TWO, {DOWN: {"K": 1}, second: {"K": 1}}, "online_hadamard", "layers")),
        case("hadamard-forgotten", "One decoder layer has none.",
             put(TWO, {DOWN: {"K": 1}}, "online_hadamard", "layers"),
             f"BN1-HADAMARD-SIBLINGS /layers/{second}"),
        case("hadamard-of-nothing", "No transforms at all.", drop(FULL, "online_hadamard")
             | {"online_hadamard": {"layers": {}}}),
    ]


def names() -> list[Case]:
    """Return the cases on names."""
    def named(name: str) -> Object:
        return with_layer(name, layer(256, 256))

    def at(name: str) -> str:
        return f"/layers/{name}"

    long = "a" * 501
    cut = "a" * 500 + "…"
    return [
        case("name-501", "Too long.", named(long), "BN1-NAME-LENGTH " + at(cut)),
        case("name-501-of-activation", "Too long in another object.",
             put(PLAIN, {long: -1}, "activation", "per_layer_group"),
             f"BN1-NAME-LENGTH /activation/per_layer_group/{cut}"),
        case("name-empty", "No name.", named(""),
             "BN1-NAME-SEGMENTS " + at(""), "BN1-NAME-KNOWN " + at("")),
        case("name-two-dots", "An empty segment.", named("model..a"),
             "BN1-NAME-SEGMENTS " + at("model..a"), "BN1-NAME-KNOWN " + at("model..a")),
        case("name-slash", "A path of files.", named("model/a"),
             "BN1-NAME-CHARACTERS " + at("model~1a"), "BN1-NAME-KNOWN " + at("model~1a")),
        case("name-newline", "A trailing newline.", named("lm_head\n"),
             "BN1-NAME-CHARACTERS " + at("lm_head\n"), "BN1-NAME-KNOWN " + at("lm_head\n")),
        case("name-nested", "A layer inside another.", named(f"{DOWN}.part"),
             "BN1-NAME-NESTED " + at(f"{DOWN}.part"), "BN1-NAME-KNOWN " + at(f"{DOWN}.part")),
        case("name-tensor", "The name of a tensor.", named("model.layers.1.mlp.down_proj_hi"),
             "BN1-NAME-KNOWN " + at("model.layers.1.mlp.down_proj_hi")),
        case("name-fused", "A layer that these architectures do not have.",
             named(f"{SELF.format(0)}.qkv_proj"),
             "BN1-NAME-KNOWN " + at(f"{SELF.format(0)}.qkv_proj")),
        case("name-leading-zero", "00 is not 0.", named("model.layers.00.mlp.down_proj"),
             "BN1-NAME-KNOWN " + at("model.layers.00.mlp.down_proj")),
        case("name-head-inside", "lm_head is at the top.", named("model.lm_head"),
             "BN1-NAME-KNOWN " + at("model.lm_head")),
    ]
