"""The kernels of the bitnest format as they are launched on a GPU, for `aot`.

Shapes are those of the layers of published packages; sizes that the interpreter enlarges are given
as a GPU has them. For each shape the default configuration, for the general paths one each.
"""

from collections.abc import Iterator
from itertools import product

import triton.language as tl
from nibblespec.optimized.kernels.activations import quantize_activations_kernel
from nibblespec.optimized.kernels.aot import ARCHITECTURES, Specialization
from nibblespec.optimized.kernels.attention import (
    BLOCK_KEYS,
    BLOCK_QUERIES,
    SPLIT_KEYS,
    attention_kernel,
    combine_kernel,
    warps,
)
from nibblespec.optimized.kernels.configurations import ANY, NESTED_LINEAR
from nibblespec.optimized.kernels.hadamard import (
    multiply_by_matrix_kernel,
    walsh_hadamard_kernel,
)
from nibblespec.optimized.kernels.kv import kv_quantize_kernel
from nibblespec.optimized.kernels.nested_linear import (
    nested_linear_kernel,
    step_columns,
    takes_halves,
)
from nibblespec.optimized.kernels.nested_reconstruct import dequantize_kernel, largest_block
from nibblespec.optimized.kernels.parts import add_parts_kernel
from nibblespec.optimized.kernels.planes import pack_planes_kernel, unpack_planes_kernel
from nibblespec.optimized.kernels.ptx import Promises
from nibblespec.optimized.kernels.quantize_transformed import (
    MOST_ELEMENTS,
    quantize_transformed_kernel,
)
from nibblespec.optimized.kernels.quantize_transformed import warps as warps_of_tile

EXACT = Promises(exact=True)
WIDE = Promises(exact=True, wide_loads=True)
FLAT = 8192
MATRIX = r"\b(?:mma\.sync\S*\.s8\.s8\.s32|wgmma\S*\.s8\.s8|tcgen05\.mma)"
HEAD_DIM = 128


def _planes() -> Iterator[Specialization]:
    yield Specialization(
        name="pack_planes",
        kernel=pack_planes_kernel,
        types={"q4": "*i8", "qr": "*i8", "hi": "*u8", "lo": "*u8", "size": "i32"},
        constants={"BLOCK": FLAT},
        promises=WIDE,
    )
    yield Specialization(
        name="unpack_planes",
        kernel=unpack_planes_kernel,
        types={"hi": "*u8", "lo": "*u8", "q4": "*i8", "qr": "*i8", "size": "i32"},
        constants={"BLOCK": FLAT},
        promises=WIDE,
    )


def _dequantize() -> Iterator[Specialization]:
    for name, stored, out, group, target in (
        ("nested_reconstruct_draft_bf16", "*fp16", "*bf16", 128, False),
        ("nested_reconstruct_target_bf16", "*fp16", "*bf16", 128, True),
        ("nested_reconstruct_target_f16_any_group", "*fp16", "*fp16", 40, True),
        ("nested_reconstruct_target_f32_one_group", "*fp16", "*fp32", 2 * FLAT, True),
        ("kv_dequantize_target", "*fp32", "*fp32", HEAD_DIM, True),
    ):
        narrow = {"*bf16": "bf16", "*fp16": "f16", "*fp32": None}[out]
        yield Specialization(
            name=name,
            kernel=dequantize_kernel,
            types={"hi": "*u8", "lo": "*u8", "scale": stored, "out": out, "size": "i32"},
            constants={"TARGET": target, "GROUP": group, "BLOCK": largest_block(group)},
            promises=Promises(exact=True, rounds_to=narrow, wide_loads=True),
        )


def _activations() -> Iterator[Specialization]:
    for name, x, rows, block in (
        ("quantize_activations_bf16_per_token", "*bf16", 1, FLAT),
        ("quantize_activations_f16_per_group", "*fp16", FLAT // 128, 128),
    ):
        yield Specialization(
            name=name,
            kernel=quantize_activations_kernel,
            types={"x": x, "codes": "*i8", "scale": "*fp32", "rows": "i32", "columns": "i32"},
            constants={"ROWS": rows, "BLOCK": block},
            promises=Promises(exact=True, divides=True, wide_loads=True),
        )


def _linear() -> Iterator[Specialization]:
    pointers = {"xq": "*i8", "sx": "*fp32", "hi": "*u8", "lo": "*u8", "scale": "*fp16"}
    counts = ("tokens", "rows", "row_bytes", "x_groups", "w_groups", "part_groups", "parts")
    for plane, width, x_width, tokens in (
        *product(("draft", "target"), (128, 64), (4096,), (16, 64, ANY)),
        *product(("draft", "target"), (256, 40), (3840,), (16,)),
    ):
        split = tokens != ANY
        block, whole = step_columns(x_width, width)
        devices = {a: NESTED_LINEAR.get(f"sm_{a}", NESTED_LINEAR["default"]) for a in ARCHITECTURES}
        for entries in dict.fromkeys(devices.values()):
            archs = tuple(arch for arch in ARCHITECTURES if devices[arch] == entries)
            tile = next(tile for most, tile in entries if tokens <= most)
            yield Specialization(
                name=f"nested_linear_{plane}_g{width}_m{tokens}_sm_{'_'.join(map(str, archs))}",
                kernel=nested_linear_kernel,
                types={
                    **pointers,
                    "bias": "*fp16",
                    "y": "*fp32" if split else "*bf16",
                    **dict.fromkeys(counts, "i32"),
                },
                constants={
                    "TARGET": plane == "target",
                    "X_WIDTH": x_width,
                    "W_WIDTH": width,
                    "WHOLE": whole,
                    "HALVES": takes_halves(tile.m, block),
                    "BIAS": not split,
                    "SPLIT": split,
                    "SUM": tl.int32,
                    "BLOCK_N": tile.n,
                    "BLOCK_M": tile.m,
                    "BLOCK_K": block,
                },
                odd=frozenset({"tokens", "x_groups", "w_groups", "part_groups", "parts"}),
                promises=Promises(
                    exact=True,
                    rounds_to=None if split else "bf16",
                    wide_loads=whole,
                    matrix_instruction=MATRIX,
                ),
                num_warps=tile.num_warps,
                num_stages=tile.num_stages,
                archs=archs,
            )
    yield Specialization(
        name="add_parts",
        kernel=add_parts_kernel,
        types={
            "part_sums": "*fp32",
            "bias": "*fp16",
            "y": "*bf16",
            "count": "i32",
            "rows": "i32",
            "parts": "i32",
        },
        constants={"BIAS": True, "BLOCK": 1024},
        odd=frozenset({"parts"}),
        promises=Promises(exact=True, rounds_to="bf16", wide_loads=True),
    )


def _hadamard() -> Iterator[Specialization]:
    for log, rows, out in ((13, 1, "*bf16"), (6, 128, "*fp32"), (9, 16, "*fp32")):
        last = out == "*bf16"
        yield Specialization(
            name=f"walsh_hadamard_{1 << log}",
            kernel=walsh_hadamard_kernel,
            types={"x": "*bf16", "out": out, "rows": "i32", "factor": "fp32"},
            constants={"stride": 1, "LOG": log, "LAST": last, "ROWS": rows},
            odd=frozenset({"rows"}),
            promises=Promises(exact=True, rounds_to="bf16" if last else None, wide_loads=True),
        )
    yield Specialization(
        name="multiply_by_matrix",
        kernel=multiply_by_matrix_kernel,
        types={
            "had_k": "*fp32",
            "x": "*fp32",
            "out": "*bf16",
            "order": "i32",
            "columns": "i32",
            "count": "i32",
            "factor": "fp32",
        },
        constants={"ROWS": 32, "COLUMNS": 64},
        odd=frozenset({"order"}),
        promises=Promises(exact=True, rounds_to="bf16"),
    )


def _quantize_transformed() -> Iterator[Specialization]:
    for order, columns, width, lines, x in (
        (0, 8192, 8192, 1, "*bf16"),  # Llama-3.2-3B
        (0, MOST_ELEMENTS, MOST_ELEMENTS, 1, "*fp32"),
        (0, 8192, 128, 1, "*bf16"),
        (0, 128, 128, 64, "*fp16"),
        (28, 512, 32 * 512, 32, "*bf16"),  # Meta-Llama-3-8B
        (28, 512, 128, 32, "*bf16"),
        (12, 128, 16 * 128, 16, "*fp32"),  # SmolLM2-135M
    ):
        of_token = width == lines * columns
        yield Specialization(
            name=f"quantize_transformed_{order or 1}_{columns}_{'token' if of_token else width}",
            kernel=quantize_transformed_kernel,
            types={
                "x": x,
                "had_k": "*fp32",
                "passed": "*fp32",
                "codes": "*i8",
                "scale": "*fp32",
                "lines": "i32",
                "factor": "fp32",
            },
            constants={
                "ORDER": order,
                "LOG": columns.bit_length() - 1,
                "LINES": lines,
                "WIDTH": width,
            },
            odd=frozenset({"lines"}),
            promises=Promises(
                exact=True, divides=True, wide_loads=True, reads_what_it_wrote=order > 0
            ),
            num_warps=warps_of_tile(lines * columns),
        )


def _kv() -> Iterator[Specialization]:
    for name, x, width, scatter in (
        ("kv_quantize_bf16", "*bf16", HEAD_DIM, False),
        ("kv_write_bf16", "*bf16", HEAD_DIM, True),
        ("kv_quantize_f32_width_96", "*fp32", 96, False),
    ):
        yield Specialization(
            name=name,
            kernel=kv_quantize_kernel,
            types={
                "x": x,
                "offset": "*bf16",
                "slots": "*i64",
                "hi": "*u8",
                "lo": "*u8",
                "scale": "*fp32",
                "rows": "i32",
                "tokens": "i32",
                "heads": "i32",
                "capacity": "i32",
            },
            constants={
                "WIDTH": width,
                "OFFSET": True,
                "SCATTER": scatter,
                "ROWS": FLAT // 128 // 4,
                "BLOCK": 128,
            },
            odd=frozenset({"rows", "tokens", "heads", "capacity"}),
            promises=Promises(exact=True, divides=True, wide_loads=True),
        )


def _attention() -> Iterator[Specialization]:
    counts = ("queries", "ratio", "capacity", "position", "splits")
    for width, plane, q in (
        (64, "draft", "bf16"),
        (128, "draft", "bf16"),
        (128, "target", "bf16"),
        (96, "target", "fp16"),
        (128, "target", "fp32"),
        (256, "target", "bf16"),
    ):
        block_d = {64: 64, 96: 128, 128: 128, 256: 256}[width]
        yield Specialization(
            name=f"attention_{plane}_{width}_{q}",
            kernel=attention_kernel,
            types={
                "q": f"*{q}",
                "k_hi": "*u8",
                "k_lo": "*u8",
                "k_scale": "*fp32",
                "v_hi": "*u8",
                "v_lo": "*u8",
                "v_scale": "*fp32",
                "sums": "*fp32",
                "maxima": "*fp32",
                "weights": "*fp32",
                **dict.fromkeys(counts, "i32"),
                "factor": "fp32",
            },
            constants={
                "WIDTH": width,
                "TARGET": plane == "target",
                "PARTS": {"bf16": 1, "fp16": 2, "fp32": 3}[q],
                "BLOCK_D": block_d,
                "BLOCK_Q": BLOCK_QUERIES,
                "BLOCK_L": BLOCK_KEYS,
                "SPLIT_L": SPLIT_KEYS,
            },
            odd=frozenset(counts),
            promises=Promises(
                exact=True, wide_loads=True, matrix_instruction=r"\bmma\.sync\S*\.bf16\.bf16\.f32"
            ),
            num_warps=warps(block_d),
        )
    yield Specialization(
        name="combine",
        kernel=combine_kernel,
        types={
            "sums": "*fp32",
            "maxima": "*fp32",
            "weights": "*fp32",
            "offset": "*bf16",
            "out": "*bf16",
            "rows": "i32",
            "splits": "i32",
            "of_head": "i32",
            "heads": "i32",
        },
        constants={"WIDTH": HEAD_DIM, "OFFSET": True, "ROWS": 16, "BLOCK_D": HEAD_DIM},
        odd=frozenset({"rows", "splits", "of_head", "heads"}),
        promises=Promises(exact=True, divides=True, rounds_to="bf16", wide_loads=True),
    )


SPECIALIZATIONS = (
    *_planes(),
    *_dequantize(),
    *_activations(),
    *_linear(),
    *_hadamard(),
    *_quantize_transformed(),
    *_kv(),
    *_attention(),
)
