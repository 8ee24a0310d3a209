"""What the operations on tensors refuse, before any work, and with which words."""

import pytest
import torch
from nibblespec.optimized import torch_backend
from nibblespec.optimized.arrays import to_array
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.pytorch import operations
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import OPERATIONS

from tests.torch_samples import dashq_weight, nested_scale, planes

LAYOUT = DashqLayout(4, 32, 3, 64, 64)
WEIGHT = dashq_weight(LAYOUT, torch.float16, 0)
HI, LO = planes((3, 32), 0)
SCALE = nested_scale((3, 2), 0)
XQ, SX = torch.zeros(2, 64, dtype=torch.int8), torch.ones(2, 1)
X = torch.zeros(2, 64)
CACHE = (HI.view(1, 1, 3, 32), None, torch.ones(1, 1, 3)) * 2
Q = torch.zeros(1, 2, 1, 64)
BF16, F32 = torch.bfloat16, torch.float32


Refused = tuple[str, type[Exception], str, tuple[object, ...]]


def refused(operation: str, kind: type[Exception], match: str, *arguments: object) -> Refused:
    """Describe a call that is refused, for a table of them."""
    return operation, kind, match, arguments


REFUSED = (
    refused("pack_words", TypeError, "codes: expected dtype uint8, found int8", XQ[0], 4),
    refused("pack_words", ValueError, "nbits: expected 1 … 8, found 9", HI[0], 9),
    refused("pack_words", ValueError, "codes: expected at most 1, found", HI[0] | 2, 1),
    refused("pack_words", TypeError, "codes: expected a tensor, found list", [1], 1),
    refused("quantize_activations", TypeError, "group: expected an integer, found -1.0", X, -1.0),
    refused("quantize_activations", ValueError, "group: expected at least -1, found -2", X, -2),
    refused("quantize_activations", TypeError, "x: expected a dense tensor", X.to_sparse(), -1),
    refused(
        "dashq_reconstruct",
        TypeError,
        "layout: expected a DashqLayout, found tuple",
        *WEIGHT,
        tuple(LAYOUT),
        BF16,
    ),
    refused("unpack_words", ValueError, r"words: expected shape \[2\]", WEIGHT[0], 4, 9),
    refused("unpack_words", ValueError, "count: expected at least 0", WEIGHT[0], 4, -1),
    refused("unpack_words", TypeError, "count: expected an integer", WEIGHT[0], 4, 1.0),
    refused(
        "dashq_reconstruct",
        ValueError,
        r"words: expected shape \[24\], found \[23\]",
        WEIGHT[0][1:],
        *WEIGHT[1:],
        LAYOUT,
        BF16,
    ),
    refused(
        "dashq_reconstruct",
        TypeError,
        "scale: expected dtype float16 or bfloat16 or float32 or float8_e4m3fn or float8_e5m2",
        WEIGHT[0],
        WEIGHT[1].double(),
        WEIGHT[2],
        LAYOUT,
        BF16,
    ),
    refused(
        "dashq_reconstruct",
        TypeError,
        "zero: expected dtype float16, found float32",
        *WEIGHT[:2],
        WEIGHT[2].float(),
        LAYOUT,
        BF16,
    ),
    refused(
        "dashq_reconstruct",
        ValueError,
        r"scale: expected shape \[6, 1\], found \[6\]",
        WEIGHT[0],
        WEIGHT[1][:, 0],
        WEIGHT[2],
        LAYOUT,
        BF16,
    ),
    refused(
        "dashq_reconstruct",
        ValueError,
        "dtype: expected torch.float16, torch.bfloat16 or torch.float32",
        *WEIGHT,
        LAYOUT,
        torch.float64,
    ),
    refused(
        "dashq_reconstruct",
        ValueError,
        "group_size: expected a divisor of stored_columns = 64, found 33",
        *WEIGHT,
        LAYOUT._replace(group_size=33),
        BF16,
    ),
    refused(
        "dashq_reconstruct",
        ValueError,
        "stored_columns: expected at least 65, found 64",
        *WEIGHT,
        LAYOUT._replace(columns=65),
        BF16,
    ),
    refused(
        "dashq_linear",
        ValueError,
        r"x: expected shape \[M, 64\], found \[2, 63\]",
        X[:, 1:],
        *WEIGHT,
        None,
        LAYOUT,
    ),
    refused(
        "dashq_linear",
        TypeError,
        "bias: expected dtype float32, found bfloat16",
        X,
        *WEIGHT,
        torch.zeros(3, dtype=BF16),
        LAYOUT,
    ),
    refused(
        "dashq_linear",
        ValueError,
        "x: expected a tensor on cpu, where the first tensor is, found one on meta",
        X.to("meta"),
        *WEIGHT,
        None,
        LAYOUT,
    ),
    refused("pack_planes", ValueError, r"qr: expected shape \[2, 64\]", XQ, XQ[:1]),
    refused("pack_planes", ValueError, "even number of columns", XQ[:, 1:], XQ[:, 1:]),
    refused("pack_planes", ValueError, r"q4: expected codes in -8 … 7, found 8", XQ + 8, XQ),
    refused("pack_planes", ValueError, "BN1-CODES-INT8", XQ - 8, XQ - 1),
    refused("unpack_planes", ValueError, r"lo: expected shape \[3, 32\]", HI, LO[1:]),
    refused("nested_reconstruct", ValueError, "plane: expected draft", HI, LO, SCALE, "both", F32),
    refused(
        "nested_reconstruct",
        TypeError,
        "lo: expected a tensor, found NoneType",
        HI,
        None,
        SCALE,
        "target",
        F32,
    ),
    refused(
        "nested_reconstruct",
        ValueError,
        "groups of scale: expected a divisor of K = 64, found 3",
        HI,
        LO,
        torch.zeros(3, 3, dtype=torch.float16),
        "target",
        F32,
    ),
    refused(
        "nested_reconstruct",
        TypeError,
        "scale: expected dtype float16, found bfloat16",
        HI,
        LO,
        SCALE.to(BF16),
        "target",
        F32,
    ),
    refused("quantize_activations", ValueError, "group: expected a divisor of K = 64", X, 33),
    refused("quantize_activations", ValueError, "group: expected at least 1, found 0", X, 0),
    refused("quantize_activations", TypeError, "x: expected dtype float16", X.double(), -1),
    refused("quantize_activations", ValueError, "columns of x: expected at least 1", X[:, :0], -1),
    refused(
        "nested_linear",
        ValueError,
        "groups of sx: expected a divisor of K = 64, found 3",
        XQ,
        torch.ones(2, 3),
        HI,
        LO,
        SCALE,
        None,
        "target",
        F32,
    ),
    refused(
        "nested_linear",
        TypeError,
        "bias: expected dtype float16, found float32",
        XQ,
        SX,
        HI,
        LO,
        SCALE,
        torch.zeros(3),
        "target",
        F32,
    ),
    refused(
        "nested_linear",
        ValueError,
        r"sx: expected shape \[2, groups\], found \[1, 1\]",
        XQ,
        SX[:1],
        HI,
        LO,
        SCALE,
        None,
        "target",
        F32,
    ),
    refused("hadamard", ValueError, "expected a last axis of 1·2", X[:, :48], None, F32),
    refused("hadamard", ValueError, "expected a last axis of 3·2", X, torch.ones(3, 3), F32),
    refused("hadamard", ValueError, r"had_k: expected shape \[3, 3\]", X, torch.ones(3, 2), F32),
    refused(
        "hadamard", TypeError, "had_k: expected dtype float32", X, torch.ones(2, 2).half(), F32
    ),
    refused("hadamard", TypeError, "x: expected a tensor, found int", 1, None, F32),
    refused("kv_quantize", ValueError, "even number of columns, found 63", X[:, 1:], None),
    refused("kv_quantize", ValueError, r"x: expected shape \[..., H, L, D\]", X, X),
    refused("kv_quantize", ValueError, r"offset: expected shape \[2, 64\]", Q, X[:1]),
    refused("kv_dequantize", ValueError, r"scale: expected shape \[3\]", HI, None, SX, "draft"),
    refused(
        "kv_attention",
        ValueError,
        "position: expected 0 … 2, found 3",
        Q,
        *CACHE,
        None,
        3,
        "draft",
        1.0,
        F32,
    ),
    refused(
        "kv_attention",
        ValueError,
        "heads of the cache: expected a divisor of Hq = 3, found 2",
        torch.zeros(1, 3, 1, 64),
        *(
            value if value is None else value.repeat(1, 2, *[1] * (value.ndim - 2))
            for value in CACHE
        ),
        None,
        0,
        "draft",
        1.0,
        F32,
    ),
    refused(
        "kv_attention",
        ValueError,
        "softmax_scale: expected a positive finite normal float32 number, found 0.0",
        Q,
        *CACHE,
        None,
        0,
        "draft",
        0.0,
        F32,
    ),
    *(
        refused("kv_attention", kind, match, Q, *CACHE, None, 0, "draft", scale, F32)
        for kind, match, scale in (
            (ValueError, "softmax_scale: expected a positive finite normal float32 number", 1e39),
            (TypeError, "softmax_scale: expected a number, found '1'", "1"),
            (TypeError, "softmax_scale: expected a number, found True", True),
        )
    ),
    refused(
        "kv_attention",
        ValueError,
        r"v_offset: expected shape \[1, 64\]",
        Q,
        *CACHE,
        X,
        0,
        "draft",
        1.0,
        F32,
    ),
)


@pytest.mark.parametrize(
    ("operation", "kind", "match", "arguments"),
    REFUSED,
    ids=[f"{case[0]}: {case[2]}" for case in REFUSED],
)
def test_a_wrong_call_is_refused(
    operation: str, kind: type[Exception], match: str, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(kind, match=match):
        getattr(operations, operation)(*arguments)


def test_every_operation_refuses_something() -> None:
    assert {case[0] for case in REFUSED} == set(OPERATIONS)


def make_module(**changes: object) -> Module:
    sizes: dict[str, object] = {
        "nbits": 4,
        "group_size": 32,
        "in_features": 64,
        "out_features": 3,
        "num_groups": 6,
        "packing": "int4_packed_u32",
        "scale_zero_dtype": "float16",
        "linear_dtype": "bfloat16",
    }
    return Module.model_validate({**sizes, **changes})


@pytest.mark.parametrize(
    ("kind", "match", "changes"),
    [
        (TypeError, "scale: expected dtype bfloat16", {"scale_zero_dtype": "bfloat16"}),
        (ValueError, "module.scale_zero_dtype: expected one of", {"scale_zero_dtype": "fp16"}),
        (ValueError, r"scale: expected shape \[7, 1\]", {"num_groups": 7}),
    ],
)
def test_arrays_that_do_not_fit_their_module_are_refused(
    kind: type[Exception], match: str, changes: dict[str, object]
) -> None:
    packed, scale, zero = map(to_array, WEIGHT)
    with pytest.raises(kind, match=match):
        torch_backend.dashq_reconstruct(packed, scale, zero, make_module(**changes), "bfloat16")


def test_an_input_in_another_dtype_than_the_layers_is_refused() -> None:
    packed, scale, zero = map(to_array, WEIGHT)
    with pytest.raises(TypeError, match="x: expected dtype bfloat16, found float32"):
        torch_backend.dashq_linear(to_array(X), packed, scale, zero, None, make_module())
