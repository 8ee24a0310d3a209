"""How much the columns of each weight matter: the mean square of the layer's inputs on a text.

An error in column k of a weight changes the output by that error times input k, so that the sum of
squared errors, each times its column's mean square, is the output's error as far as inputs do not
correlate: the diagonal of the Hessian.
"""

from collections.abc import Callable, Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import torch
from nibblespec.optimized.convert.errors import ConversionError
from nibblespec.optimized.convert.source import read_whole
from torch import Tensor, nn

WINDOW = 512
MOST_WINDOWS = 64

MOST_BYTES = 1 << 24
"""Of a text: its tokens take a multiple in memory, and those past the last window are not used."""


def input_energies(model_dir: Path, text: Path) -> tuple[Mapping[str, Tensor], int]:
    """Return the mean square of each input, float64 [K] by module, and the windows that were run.

    The whole model is held in memory, in its own dtype. Layers that are no modules of their own in
    transformers, such as fused experts, are left out. Raises ConversionError for a text that
    cannot be read or is shorter than two tokens, and for what transformers cannot read.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415  (only here)
    from transformers.utils import logging  # noqa: PLC0415

    data = read_whole(text, MOST_BYTES, "a text in UTF-8")
    try:
        with TextIOWrapper(BytesIO(data), encoding="utf-8") as stream:  # it unifies ends of lines
            words = stream.read()
    except UnicodeDecodeError as error:
        raise ConversionError(f"{text}: expected a text in UTF-8: {error}") from error
    local: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(model_dir, **local)
    except Exception as error:  # whatever a file that is none, or a path that is no UTF-8, raises
        raise _unreadable(model_dir, "tokenizer", error) from error
    ids: Tensor = tokenizer(words, return_tensors="pt").input_ids
    windows = torch.split(ids, WINDOW, dim=1)[:MOST_WINDOWS]
    tokens = sum(window.shape[1] for window in windows)
    if tokens < 2:
        raise ConversionError(f"{text}: expected some thousand words, found {tokens} tokens")
    sums: dict[str, Tensor] = {}
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", **local)
    except Exception as error:  # whatever an architecture that it does not know raises
        raise _unreadable(model_dir, "model", error) from error
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


def _unreadable(model_dir: Path, what: str, error: Exception) -> ConversionError:
    reason = str(error).partition("\n")[0]
    return ConversionError(
        f"{model_dir}: calibration needs the {what}, and transformers cannot read it: "
        f"{type(error).__name__}: {reason}"
    )


def _adding(total: Tensor) -> Callable[[nn.Module, tuple[Any, ...]], None]:
    def add(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0].detach().to(torch.float64)
        total.add_(x.square().reshape(-1, x.shape[-1]).sum(dim=0))

    return add
