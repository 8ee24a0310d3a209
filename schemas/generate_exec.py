"""The JSON Schema of the exec protocol's lines, generated from `nibblespec.spec.exec_protocol`."""

from typing import get_args

from nibblespec.spec.exec_protocol import (
    ARGUMENTS,
    AXES,
    DTYPES,
    ECHO,
    HELLO,
    MODULE,
    PROTOCOL,
    SCALARS,
)
from nibblespec.spec.operations import (
    OPERATIONS,
    DashqRounding,
    FloatDtype,
    LinearWeightRounding,
    Plane,
)

Schema = dict[str, object]

NAME = "exec-protocol.schema.json"

_FLOATS = list(get_args(FloatDtype))
_SCALE_ZERO = [*_FLOATS, "float8_e4m3fn", "float8_e5m2"]
_COUNT: Schema = {"type": "integer", "minimum": 0}
_POSITIVE: Schema = {"type": "integer", "minimum": 1}
_BITS: Schema = {"type": "integer", "minimum": 1, "maximum": 8}
_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
_SHAPE: Schema = {"type": "array", "items": _COUNT, "maxItems": AXES}
_DTYPE: Schema = {"enum": list(DTYPES)}

_SCALAR: dict[str, Schema] = {
    "nbits": _BITS,
    "count": _COUNT,
    "group": {"type": "integer", "minimum": -1, "not": {"const": 0}},
    "plane": {"enum": list(get_args(Plane))},
    "position": _COUNT,
    "softmax_scale": {"type": "number", "exclusiveMinimum": 0},
    "dtype": {"enum": _FLOATS},
    "module": {"$ref": "#/$defs/module"},
}


def generate(dialect: str) -> Schema:
    """Return the JSON Schema of a line: of a call or of an answer."""
    return {
        "$schema": dialect,
        "$id": f"urn:nibblespec:schema:exec-protocol:{PROTOCOL}",
        "$comment": "Generated from spec/exec_protocol.py.",
        "title": f"A line of the exec protocol, version {PROTOCOL}",
        "description": "What goes to an adapter (`call`) and what it answers (`answer`), without"
        " the payload that follows. spec/exec_protocol.md is the text.",
        "anyOf": [{"$ref": "#/$defs/call"}, {"$ref": "#/$defs/answer"}],
        "$defs": {
            "call": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in (HELLO, ECHO, *OPERATIONS)]},
            HELLO: _call(HELLO, (), {"protocol": {"const": PROTOCOL}}),
            ECHO: _call(ECHO, (), {}),
            **{name: _operation(name) for name in OPERATIONS},
            "argument": {
                "type": "object",
                "required": ["name", "dtype", "shape", "bytes"],
                "properties": {
                    "name": {"type": "string"},
                    "dtype": _DTYPE,
                    "shape": _SHAPE,
                    "bytes": _COUNT,
                },
            },
            "answer": {
                "oneOf": [
                    {"$ref": "#/$defs/identity"},
                    {"$ref": "#/$defs/result"},
                    {"$ref": "#/$defs/failure"},
                ]
            },
            "identity": _answer(
                "The answer to hello.",
                {
                    "protocol": {"const": PROTOCOL},
                    "name": _TEXT,
                    "version": _TEXT,
                    "device": _TEXT,
                    "capabilities": {"$ref": "#/$defs/capabilities"},
                },
            ),
            "result": _answer(
                "The answer to echo or to an operation.",
                {
                    "arrays": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["dtype", "shape"],
                            "properties": {"dtype": _DTYPE, "shape": _SHAPE},
                        },
                    }
                },
                "payload",
            ),
            "failure": _answer("The answer to a call that failed.", {"error": {"type": "string"}}),
            "module": {
                "type": "object",
                "required": list(MODULE),
                "properties": {key: _module_key(key) for key in MODULE},
            },
            "capabilities": _capabilities(),
        },
    }


def _operation(name: str) -> Schema:
    arguments = ARGUMENTS[name]
    scalars = {key: _SCALAR[key] for key in SCALARS if key in arguments}
    return _call(name, tuple(one for one in arguments if one not in SCALARS), scalars)


def _call(name: str, arrays: tuple[str, ...], scalars: dict[str, Schema]) -> Schema:
    argument: Schema = {"$ref": "#/$defs/argument"}
    if arrays:
        argument |= {"properties": {"name": {"enum": list(arrays)}}}
    elif name == HELLO:
        argument = {"not": {}}
    keys = {"id": _COUNT, "call": {"const": name}, **scalars}
    listed: Schema = {"type": "array", "items": argument}
    return {
        "type": "object",
        "required": [*keys, "arrays", "payload"],
        "properties": {**keys, "arrays": listed, "payload": _COUNT},
    }


def _answer(description: str, keys: dict[str, Schema], *more: str) -> Schema:
    return {
        "description": description,
        "type": "object",
        "required": ["id", *keys, *more],
        "properties": {"id": _COUNT, **keys, "payload": _COUNT},
    }


def _module_key(key: str) -> Schema:
    special: dict[str, Schema] = {
        "nbits": _BITS,
        "packing": {"type": "string"},
        "scale_zero_dtype": {"enum": _SCALE_ZERO},
        "linear_dtype": {"enum": _FLOATS},
    }
    return special.get(key, _POSITIVE)


def _capabilities() -> Schema:
    def some(of: Schema) -> Schema:
        return {"type": "array", "items": of}

    def any_or_some(of: Schema) -> Schema:
        return {"type": ["array", "null"], "items": of}

    return {
        "description": "What an adapter claims; a key that is left out has its default.",
        "type": "object",
        "required": ["operations"],
        "additionalProperties": False,
        "properties": {
            "operations": some({"enum": list(OPERATIONS)}),
            "bit_widths": some(_BITS),
            "group_sizes": any_or_some(_POSITIVE),
            "dtypes": some({"enum": _FLOATS}),
            "scale_zero_dtypes": some({"enum": _SCALE_ZERO}),
            "head_dims": any_or_some({**_POSITIVE, "multipleOf": 2}),
            "hadamard_orders": any_or_some(_POSITIVE),
            "padded_inputs": {"type": "boolean"},
            "dashq_rounding": {"enum": list(get_args(DashqRounding))},
            "linear_weight_rounding": {"enum": list(get_args(LinearWeightRounding))},
            "prefill_f16_from": {"type": ["integer", "null"], "minimum": 1},
            "row_invariant_dashq_linear": {"type": "boolean"},
        },
    }
