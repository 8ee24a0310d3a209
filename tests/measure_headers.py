"""Measure the level `headers` on a checkpoint of 500 GB: `python tests/measure_headers.py DIR`.

Writes 200 sparse shards with 60,000 tensors of 20,000 modules under DIR (some 30 MB on disk),
validates it in a process of its own, removes it, and prints time and peak memory. DIR is new.
"""

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SHARDS = 200
EXPERTS = 125
LAYERS = 80
ROWS, COLUMNS, GROUP = 10240, 6144, 128
PARTS = {"gate_up_proj_list": (ROWS, COLUMNS), "down_proj_list": (COLUMNS, ROWS // 2)}


def module(rows: int, columns: int) -> dict[str, Any]:
    return {
        "nbits": 4,
        "group_size": GROUP,
        "in_features": columns,
        "out_features": rows,
        "quant_in_features": columns,
        "num_groups": rows * columns // GROUP,
        "packing": "int4_packed_u32",
        "scale_zero_dtype": "float16",
        "linear_dtype": "bfloat16",
        "runtime_backend": "torch",
    }


def write(folder: Path) -> int:
    """Write the checkpoint and return the size of its shards together."""
    folder.mkdir(parents=True)
    modules = {
        f"model.layers.{layer}.mlp.experts.{part}.{expert}": module(*shape)
        for layer in range(LAYERS)
        for part, shape in PARTS.items()
        for expert in range(EXPERTS)
    }
    tensors = [
        entry
        for name, each in modules.items()
        for entry in (
            (f"{name}.W_q_packed", "I32", [each["out_features"] * each["in_features"] // 8], 4),
            (f"{name}.scale", "F16", [each["num_groups"], 1], 2),
            (f"{name}.zero", "F16", [each["num_groups"], 1], 2),
        )
    ]
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(SHARDS):
        file = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, dtype, shape, size in tensors[number::SHARDS]:
            begin, end = end, end + size * shape[0]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
            weight_map[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with (folder / file).open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            stream.truncate(8 + len(text) + end)
        total += end
    documents = {
        "dashq_config.json": {
            "format": "dashq-packed-linear",
            "format_version": 1,
            "quantized_modules": modules,
        },
        "config.json": {
            "model_type": "measured",
            "num_hidden_layers": LAYERS,
            "hidden_size": COLUMNS,
            "num_experts": EXPERTS,
        },
        "model.safetensors.index.json": {
            "metadata": {"total_size": total},
            "weight_map": weight_map,
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2))
    return total


def main() -> None:
    """Write, validate and remove the checkpoint; print the figures."""
    folder = Path(sys.argv[1])
    total = write(folder)
    program = "from nibblespec.conformance.cli import main; main()"
    command = [sys.executable, "-c", program, "validate", str(folder)]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        elapsed = time.perf_counter() - start
    finally:
        shutil.rmtree(folder)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(done.stdout + done.stderr, end="")
    print(f"{total / 1e9:.0f} GB, {SHARDS} shards, {3 * LAYERS * 2 * EXPERTS:,} tensors")
    print(f"{elapsed:.2f} s, {peak / 1e6:.0f} MB, exit status {done.returncode}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
