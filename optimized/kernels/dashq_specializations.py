"""The kernels of the dashq format as they are launched on a GPU, for `aot`.

Every bit width, dtype of parameters and number of tokens with the default configuration, in layers
of the published shapes; for the general paths one each.
"""

from collections.abc import Iterator

import torch
import triton
from nibblespec.optimized.kernels.aot import ARCHITECTURES, Specialization
from nibblespec.optimized.kernels.configurations import ANY, DASHQ_LINEAR, DASHQ_LINEAR_GENERAL
from nibblespec.optimized.kernels.dashq_linear import (
    dashq_linear_kernel,
    is_fast,
    step_columns,
)
from nibblespec.optimized.kernels.dashq_reconstruct import dashq_reconstruct_kernel, warps
from nibblespec.optimized.kernels.ptx import Promises
from nibblespec.optimized.kernels.tiles import FLAT_BLOCK
from nibblespec.optimized.kernels.words import (
    pack_words_kernel,
    rows_are_aligned,
    unpack_words_kernel,
)
from nibblespec.optimized.layout import DashqLayout, codes_per_word

WIDTHS = range(1, 9)
FLOATS = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
WIDE = {nbits: "words.py" if nbits in (2, 4, 8) else "" for nbits in WIDTHS}
"""Where all loads are 128 bits wide, if a thread has four words of a tile or more."""

POINTERS = {"bf16": "*bf16", "f16": "*fp16", "f32": "*fp32", "e4m3fn": "*u8", "e5m2": "*u8"}
MATRIX = r"\b(?:mma\.sync\.\S*\.m16n8k16\.|wgmma\S*\.m64n\d+k16\.|tcgen05\.mma\S*kind::f16)"
"""Matrix instructions of 16-bit factors: 16 columns of K each, for every number of tokens."""


def _words() -> Iterator[Specialization]:
    for nbits in WIDTHS:
        types = {"words": "*i32", "codes": "*u8", "count": "i32", "word_count": "i32"}
        slots = triton.next_power_of_2(codes_per_word(nbits))
        yield Specialization(
            name=f"unpack_words_b{nbits}",
            kernel=unpack_words_kernel,
            types=types,
            constants={"NBITS": nbits, "BLOCK": FLAT_BLOCK},
            promises=Promises(exact=True, wide_in=WIDE[nbits]),
        )
        yield Specialization(
            name=f"pack_words_b{nbits}",
            kernel=pack_words_kernel,
            types=types,
            constants={"NBITS": nbits, "SLOTS": slots, "BLOCK": FLAT_BLOCK // slots},
            promises=Promises(exact=True),
        )


def _reconstruct() -> Iterator[Specialization]:
    flat = 1, FLAT_BLOCK
    cases = [(nbits, 32, "f16", "bf16", flat) for nbits in WIDTHS]
    cases += [(4, group, "f16", "bf16", flat) for group in (64, 128, 40, 16384)]
    cases += [(4, 32, stored, "f16", flat) for stored in ("bf16", "f32", "e4m3fn", "e5m2")]
    cases += [(4, 32, "f16", "f32", flat), (4, 32, "f16", "bf16", (2, FLAT_BLOCK // 2))]
    for nbits, group, stored, out, (rows, block) in cases:
        pointer, form = POINTERS[stored], "flat" if rows == 1 else "rows"
        yield Specialization(
            name=f"dashq_reconstruct_b{nbits}_g{group}_{stored}_{out}_{form}",
            kernel=dashq_reconstruct_kernel,
            types={
                "words": "*i32",
                "scale": pointer,
                "zero": pointer,
                "weight": POINTERS[out],
                "columns": "i32",
                "stored_columns": "i32",
                "row_words": "i32",
                "row_groups": "i32",
            }
            | ({} if rows == 1 else {"rows": "i32"}),
            constants=({"rows": 1} if rows == 1 else {})
            | {
                "NBITS": nbits,
                "GROUP": group,
                "FP8": stored if stored.startswith("e") else "",
                "ROWS": rows,
                "BLOCK": block,
                "ALIGNED": 32 % nbits == 0,
            },
            odd=frozenset({"rows"}),  # 1 is compiled as a constant
            num_warps=warps(32 % nbits == 0),
            promises=Promises(
                exact=True, rounds_to=None if out == "f32" else out, wide_in=WIDE[nbits]
            ),
        )


def _linear() -> Iterator[Specialization]:
    cases = [(nbits, 32, "f16", "bf16", tokens) for nbits in WIDTHS for tokens in (16, ANY)]
    cases += [(nbits, 32, "f16", "bf16", tokens) for nbits in (1, 2, 4, 8) for tokens in (1, 64)]
    cases += [(4, group, "f16", "bf16", 16) for group in (64, 128, 256, 40)]
    cases += [(4, 32, stored, "f16", 16) for stored in ("bf16", "f32", "e4m3fn", "e5m2")]
    cases += [(4, 32, "f16", "f32", tokens) for tokens in (16, ANY)]
    for case in cases:
        yield from _linear_of(*case, columns=4000 if case[1] == 40 else 4096)
    yield from _linear_of(4, 32, "f16", "bf16", 16, columns=4032)


def _linear_of(
    nbits: int, group: int, stored: str, dtype: str, tokens: float, columns: int
) -> Iterator[Specialization]:
    """Yield the layer [4096, columns] for up to so many tokens, as each device launches it."""
    pointer, x = POINTERS[stored], POINTERS[dtype]
    layout = DashqLayout(nbits, group, 4096, columns, columns)
    aligned = rows_are_aligned(4096, columns, nbits)
    fast = is_fast(layout, FLOATS[dtype])
    table = DASHQ_LINEAR if fast else DASHQ_LINEAR_GENERAL
    split = tokens != ANY
    block_k = step_columns(layout, FLOATS[dtype])
    sizes = {"tokens", "rows", "columns", "stored_columns", "row_words", "row_groups"}
    sizes |= {"part_steps", "parts"}
    one = {"tokens": 1} if tokens == 1 else {}  # Triton compiles the number 1 as a constant
    devices = {
        arch: next(
            tile for most, tile in table.get(f"sm_{arch}", table["default"]) if tokens <= most
        )
        for arch in ARCHITECTURES
    }
    for tile in dict.fromkeys(devices.values()):
        archs = tuple(arch for arch in ARCHITECTURES if devices[arch] == tile)
        device = "sm_" + "_".join(map(str, archs))
        of_a_thread = tile.n * block_k * nbits // 32 // (32 * tile.num_warps)  # words
        yield Specialization(
            name=f"dashq_linear_b{nbits}_g{group}_{stored}_{dtype}_{columns}_m{tokens}_{device}",
            kernel=dashq_linear_kernel,
            types={
                "x": x,
                "words": "*i32",
                "scale": pointer,
                "zero": pointer,
                "bias": x,
                "y": "*fp32" if split else x,
                **dict.fromkeys(sizes - set(one), "i32"),
            },
            constants=one
            | {
                "NBITS": nbits,
                "GROUP": group,
                "FP8": stored if stored.startswith("e") else "",
                "ALIGNED": aligned,
                "WHOLE": columns % block_k == 0,
                "BIAS": not split,
                "SPLIT": split,
                "BLOCK_N": tile.n,
                "BLOCK_M": tile.m,
                "BLOCK_K": block_k,
            },
            odd=frozenset(
                {"tokens", "part_steps", "parts"} | ({"row_words"} if not aligned else set())
            ),
            promises=Promises(
                exact=True,
                dot_of_float32=dtype == "f32",
                rounds_to=None if dtype == "f32" else dtype,
                wide_in=WIDE[nbits] if fast and of_a_thread >= 4 else "",
                matrix_instruction=None if dtype == "f32" else MATRIX,
            ),
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            archs=archs,
        )


SPECIALIZATIONS = (*_words(), *_reconstruct(), *_linear())
