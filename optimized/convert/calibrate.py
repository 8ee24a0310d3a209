"""How much the columns of each weight matter: the mean square of the layer's inputs on a text.

An error in column k of a weight changes the output by that error times input k, so that the sum of
squared errors, each times its column's mean square, is the output's error as far as inputs do not
correlate: the diagonal of the Hessian.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.errors import ConversionError
from torch import Tensor, nn

WINDOW = 512
MOST_WINDOWS = 64


def input_energies(model_dir: Path, text: Path) -> tuple[Mapping[str, Tensor], int]:
    """Return the mean square of each input, float64 [K] by module, and the windows that were run.

    The whole model is held in memory, in its own dtype. Layers that are no modules of their own in
    transformers, such as fused experts, are left out. Raises ConversionError for a text that
    cannot be read or is shorter than two tokens.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415  (only here)
    from transformers.utils import logging  # noqa: PLC0415

    try:
        words = text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConversionError(f"{text}: expected a text in UTF-8: {error}") from error
    ids: Tensor = AutoTokenizer.from_pretrained(model_dir)(words, return_tensors="pt").input_ids
    windows = torch.split(ids, WINDOW, dim=1)[:MOST_WINDOWS]
    tokens = sum(window.shape[1] for window in windows)
    if tokens < 2:
        raise ConversionError(f"{text}: expected some thousand words, found {tokens} tokens")
    sums: dict[str, Tensor] = {}
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto")
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            sums[name] = torch.zeros(module.in_features, dtype=torch.float64)
            module.register_forward_pre_hook(_adding(sums[name]))
    with torch.inference_mode():
        for window in windows:
            model(window, use_cache=False)
    return {name: total / tokens for name, total in sums.items()}, len(windows)


def _adding(total: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def add(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach().to(torch.float64)
        total.add_(x.square().reshape(-1, x.shape[-1]).sum(dim=0))

    return add
