"""Random speculative runs against decoding with the target alone.

`python -m tests.speculative_runs [RUNS] [BACKEND] [SEED]` makes that many, each with a model,
prompt, γ and stop condition of its own, and prints the first that differs. 500 on the torch backend
take about five minutes, 10 under Triton's interpreter about as long.
"""

import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nibblespec.optimized import load_model, nested_cache, speculate
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models import Speculation
from nibblespec.optimized.models.cache import cache_argument
from nibblespec.optimized.modules.nested_cache import EMPTY_BYTE, NestedCache
from torch import Tensor

from tests.convert_models import CONFIGS

RUNS_OF_A_MODEL = 5
VOCABULARY = 80


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a run continues its prompt."""

    prompt: Tensor
    gamma: int
    max_new_tokens: int
    eos: tuple[int, ...]
    rotate: bool
    fresh_from: int | None


def random_package(folder: Path, random: np.random.Generator) -> Path:
    """Convert a random tiny Llama or Qwen2 of random sizes and dtype."""
    name = str(random.choice(["llama", "qwen2"]))
    heads = int(random.choice([2, 4]))
    config = CONFIGS[name](
        hidden_size=int(random.choice([64, 96])),
        intermediate_size=int(random.choice([96, 128, 160])),
        num_attention_heads=heads,
        num_key_value_heads=int(random.choice([1, heads])),
        head_dim=int(random.choice([16, 32])),
        vocab_size=VOCABULARY,
        max_position_embeddings=128,
    )
    config.dtype = [torch.bfloat16, torch.float16, torch.float32][int(random.integers(3))]
    save_random(folder / "model", config, random)
    convert(
        folder / "model",
        folder / "package",
        to="bitnest",
        group_size=int(random.choice([16, 32])),
        nest_head=bool(random.integers(2)),
        overwrite=True,
    )
    return folder / "package"


def save_random(folder: Path, config: Any, random: np.random.Generator) -> None:  # noqa: ANN401
    """Save a model of a configuration with random weights."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415  # after Triton's mode is set

    auto: Any = AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        values = random.normal(0, 0.1, tuple(parameter.shape)).astype(np.float32)
        parameter.data = torch.from_numpy(values + (parameter.ndim == 1))
    model.to(config.dtype).save_pretrained(folder)


def random_decoding(random: np.random.Generator) -> Decoding:
    """Draw a prompt, γ, and stop conditions that are often met."""
    length = int(random.integers(1, 24))
    return Decoding(
        prompt=torch.from_numpy(random.integers(0, VOCABULARY, (1, length))),
        gamma=int(random.integers(1, 8)),
        max_new_tokens=int(random.integers(1, 20)),
        eos=tuple(random.integers(0, VOCABULARY, int(random.integers(0, 6))).tolist()),
        rotate=bool(random.integers(2)),
        fresh_from=[None, 2, 17][int(random.integers(3))],
    )


def plain_decoding(model: Any, decoding: Decoding, cache: NestedCache) -> list[int]:  # noqa: ANN401
    """Decode with the target alone, one token at a time."""
    ids, tokens = decoding.prompt, list[int]()
    with torch.no_grad():
        while len(tokens) < decoding.max_new_tokens:
            logits = model(ids, **{cache_argument(model): cache}, use_cache=True).logits
            tokens.append(int(logits[0, -1].argmax()))
            if tokens[-1] in decoding.eos:
                break
            ids = torch.tensor([[tokens[-1]]])
    return tokens


def difference(model: Any, decoding: Decoding) -> str:  # noqa: ANN401
    """Return in what a speculative run differs from plain decoding; nothing where it does not."""
    caches = [
        nested_cache(model, rotate=decoding.rotate, fresh_from=decoding.fresh_from)
        for _ in range(2)
    ]
    expected = plain_decoding(model, decoding, caches[0])
    found = speculate(
        model,
        decoding.prompt,
        decoding.gamma,
        max_new_tokens=decoding.max_new_tokens,
        eos=decoding.eos,
        cache=caches[1],
    )
    if found.tokens.tolist() != expected:
        return f"tokens: expected {expected}, found {found.tokens.tolist()}"
    return counts_differ(found, decoding) or caches_differ(*caches)


def counts_differ(found: Speculation, decoding: Decoding) -> str:
    """Check that counts of drafts belong together."""
    pairs = list(zip(found.drafted, found.accepted, strict=True))
    falling = all(a >= b for a, b in zip(found.accepted, found.accepted[1:], strict=False))
    possible = all(found.rounds >= drafted >= accepted for drafted, accepted in pairs)
    enough = len(found.tokens) <= 1 + found.rounds + sum(found.accepted)
    fits = falling and possible and enough and len(pairs) == decoding.gamma
    return "" if fits else f"counts: {found}"


def caches_differ(expected: NestedCache, found: NestedCache) -> str:
    """Compare lengths and contents; past the length, both are as they were before any write."""
    if found.get_seq_length() != expected.get_seq_length():
        return f"length: expected {expected.get_seq_length()}, found {found.get_seq_length()}"
    length = expected.get_seq_length()
    for number, layers in enumerate(zip(expected.layers, found.layers, strict=True)):
        for one, other in zip(*(layer.buffers for layer in layers), strict=True):
            if not torch.equal(one[:, :, :length], other[:, :, :length]):
                return f"contents of layer {number}"
            empty = 0 if one.is_floating_point() else EMPTY_BYTE
            if any((buffer[:, :, length:] != empty).any() for buffer in (one, other)):
                return f"what layer {number} holds past its length"
    return ""


def main(arguments: Collection[str]) -> None:
    """Run, and exit with the first difference."""
    given = [*arguments, *("500", "torch", "0")[len(arguments) :]]
    runs, backend, seed = int(given[0]), given[1], int(given[2])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(runs):
            random = np.random.default_rng((seed, number))
            if number % RUNS_OF_A_MODEL == 0:
                model = load_model(random_package(Path(folder), random), backend=backend)
            decoding = random_decoding(random)
            if problem := difference(model, decoding):
                sys.exit(f"run {number} of seed {seed}: {problem}\n{decoding}")
            if number % 50 == 49:
                print(f"{number + 1} runs: no difference", flush=True)
    print(f"{runs} runs on {backend}, seed {seed}: tokens and caches are identical")


if __name__ == "__main__":
    main(sys.argv[1:])
