"""Measure the level `tensors`: `python tests/measure_tensors.py DIR [GIGABYTES]`.

Writes a checkpoint of each format under DIR, of 2 GB unless told otherwise, half of it in a few
tensors. Then validates it and runs `sha256sum` on the same files, in turns and after one run of
each that fills the page cache; prints times, their ratio and peak memory. DIR is new, and removed
in the end. Exits with 1 where validation finds anything, is slower, or needs 400 MB.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from nibblespec.reference.dashq_encoder import encode_dashq
from nibblespec.reference.nested_encoder import encode_nested
from nibblespec.reference.planes import pack_planes

PEAK = 400_000_000
ROUNDS = 3
WIDTH = 4096
TILE = 512
"""Rows that are quantized; they are repeated, in another order of bytes each time."""

Data = tuple[str, str, tuple[int, ...], Iterator[bytes]]
"""Name, dtype, shape and bytes of a tensor."""


def tiles(first: np.ndarray[Any, Any], count: int) -> Iterator[bytes]:
    """Yield the bytes of an array [TILE, …] `count` times, its rows rolled further each time."""
    for index in range(count):
        yield np.roll(first, index, axis=0).tobytes()


def write_safetensors(path: Path, tensors: list[Data], format_: str = "pt") -> None:
    """Write tensors piece by piece, so that none is ever in memory as a whole."""
    sizes = {"U8": 1, "F16": 2, "BF16": 2, "I32": 4, "F32": 4}
    header: dict[str, Any] = {"__metadata__": {"format": format_}}
    end = 0
    for name, dtype, shape, _ in tensors:
        begin, end = end, end + sizes[dtype] * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for *_, pieces in tensors:
            stream.writelines(pieces)
        assert stream.tell() == 8 + len(text) + end


def write_dashq(folder: Path, size: int) -> None:
    """Write modules of 4 bits in groups of 32, of 2,048 rows each, and a larger embedding."""
    rows = 2048
    weight = np.random.default_rng(1).normal(0, 0.02, (TILE, WIDTH)).astype(np.float32)
    packed = encode_dashq(weight, 4, 32)
    tables = {
        "W_q_packed": ("I32", packed.words.reshape(TILE, -1)),
        "scale": ("F16", packed.scale.reshape(TILE, -1)),
        "zero": ("F16", packed.zero.reshape(TILE, -1)),
    }
    module = packed.module.model_dump(exclude_none=True)
    module.update(out_features=rows, num_groups=rows * WIDTH // 32)
    each = rows * WIDTH * 5 // 8
    names = [f"model.layers.{index}.mlp.up_proj" for index in range(size // 2 // each)]
    tensors: list[Data] = []
    for name in names:
        for kind, (dtype, table) in tables.items():
            count = rows * table.shape[1]
            shape = (count,) if dtype == "I32" else (count, 1)
            tensors.append((f"{name}.{kind}", dtype, shape, tiles(table, rows // TILE)))
    vocabulary = (size - len(names) * each) // (2 * WIDTH) // TILE * TILE
    table = weight.astype(ml_dtypes.bfloat16)
    tensors.append(
        (
            "model.embed_tokens.weight",
            "BF16",
            (vocabulary, WIDTH),
            tiles(table, vocabulary // TILE),
        )
    )
    write_safetensors(folder / "model.safetensors", tensors)
    documents = {
        "dashq_config.json": {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "quantized_modules": dict.fromkeys(names, module),
        },
        "config.json": {"model_type": "measured", "num_hidden_layers": len(names)},
    }
    for file, document in documents.items():
        (folder / file).write_text(json.dumps(document))


def write_bitnest(folder: Path, size: int) -> None:
    """Write one decoder layer with an MLP of most of the size, and its checksums."""
    inner = (size - 4 * WIDTH**2) // (3 * WIDTH) // TILE * TILE
    attention = [f"model.layers.0.self_attn.{kind}_proj" for kind in "qkvo"]
    shapes = dict.fromkeys(attention, (WIDTH, WIDTH))
    shapes["model.layers.0.mlp.gate_proj"] = (inner, WIDTH)
    shapes["model.layers.0.mlp.up_proj"] = (inner, WIDTH)
    shapes["model.layers.0.mlp.down_proj"] = (WIDTH, inner)
    tensors: list[Data] = []
    for name, (rows, columns) in shapes.items():
        tile = TILE * WIDTH // columns or 1
        while rows % tile:
            tile -= 1
        weight = np.random.default_rng(1).normal(0, 0.02, (tile, columns)).astype(np.float32)
        q4, qr, scale = encode_nested(weight, 128)
        hi, lo = pack_planes(q4, qr)
        tensors += [
            (f"{name}.hi", "U8", (rows, columns // 2), tiles(hi, rows // tile)),
            (f"{name}.lo", "U8", (rows, columns // 2), tiles(lo, rows // tile)),
            (f"{name}.scale", "F16", (rows, columns // 128), tiles(scale, rows // tile)),
        ]
    write_safetensors(folder / "planes.safetensors", tensors, "bitnest-planes-v1")
    ones = np.ones((TILE, WIDTH), ml_dtypes.bfloat16)
    aux: list[Data] = [
        ("embed_tokens", "BF16", (TILE, WIDTH), tiles(ones, 1)),
        ("lm_head", "BF16", (TILE, WIDTH), tiles(ones, 1)),
        ("final_norm", "BF16", (WIDTH,), iter([ones[0].tobytes()])),
    ]
    write_safetensors(folder / "aux.safetensors", aux, "bitnest-aux-v1")
    meta = {
        "format": "bitnest-package-v1",
        "arch": "llama",
        "group_size": 128,
        "pack": "unsigned+8",
        "layers": {
            name: {"shape": shape, "groups": shape[1] // 128, "has_bias": False}
            for name, shape in shapes.items()
        },
        "activation": {"per_layer_group": {}},
        "online_hadamard": {"layers": {}},
    }
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "vocab_size": TILE,
        "rms_norm_eps": 1e-6,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "config.json").write_text(json.dumps(config))
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {path.name}\n")
    (folder / "checksums.sha256").write_text("".join(lines))


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a command took."""

    seconds: float
    processor: float
    """Seconds of all cores together."""
    peak: int
    """Bytes of memory."""
    output: str
    status: int


def measure(command: list[str]) -> Measured:
    """Run a command in a process of its own."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    # Kibibytes on Linux; bytes on macOS, where the bound is then the laxer one.
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Measured(seconds, used.ru_utime + used.ru_stime, peak, output, child.returncode)


def compare(folder: Path) -> bool:
    """Measure both commands on the checkpoint of a folder; say whether the bounds hold."""
    program = "from nibblespec.conformance.cli import main; main()"
    validate = [sys.executable, "-c", program, "validate", "--level", "tensors", str(folder)]
    digest = ["sha256sum", *map(str, sorted(folder.iterdir()))]
    runs = [(measure(validate), measure(digest)) for _ in range(ROUNDS + 1)][1:]
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder.name}: {size / 1e9:.2f} GB, {len(os.sched_getaffinity(0))} cores")
    print(runs[0][0].output.strip())
    for ours, theirs in runs:
        print(
            f"  validate {ours.seconds:.2f} s ({ours.processor:.2f} s of processors, "
            f"peak {ours.peak / 1e6:.0f} MB), sha256sum {theirs.seconds:.2f} s "
            f"({theirs.processor:.2f} s): ratio {ours.seconds / theirs.seconds:.2f}"
        )
    faster = sum(ours.seconds for ours, _ in runs) <= sum(theirs.seconds for _, theirs in runs)
    silent = all(ours.status == 0 and "warning" not in ours.output for ours, _ in runs)
    return silent and faster and all(ours.peak < PEAK for ours, _ in runs)


def main() -> int:
    """Write, measure and remove both checkpoints; return the exit status."""
    folder = Path(sys.argv[1])
    size = int(float(sys.argv[2] if len(sys.argv) > 2 else 2) * 1e9)
    folder.mkdir(parents=True)
    try:
        held = []
        for name, write in (("dashq", write_dashq), ("bitnest", write_bitnest)):
            (folder / name).mkdir()
            write(folder / name, size)
            held.append(compare(folder / name))
    finally:
        shutil.rmtree(folder)
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
