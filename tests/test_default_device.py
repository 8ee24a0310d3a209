"""A default device of the user's, such as a GPU: operations, loaders, converters do not go there.

The default device here is "meta", whose tensors hold nothing: whatever strays there is noticed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
import torch
from nibblespec.optimized import load_model, portable
from nibblespec.optimized.convert import convert
from torch import Tensor, nn

from tests.convert_models import save_model
from tests.torch_samples import bounded_calls, empty_calls, exact_calls


@contextmanager
def elsewhere() -> Iterator[None]:
    """Make "meta" the default device."""
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


def test_operations_compute_where_their_tensors_are() -> None:
    for call in (*exact_calls(), *bounded_calls(), *empty_calls()):
        with elsewhere():
            found = getattr(portable.OPERATIONS, call.operation)(*call.arguments)
        parts = found if isinstance(found, tuple) else (found,)
        assert {part.device.type for part in parts} == {"cpu"}, call.operation


@pytest.mark.parametrize("to", ["dashq", "bitnest"])
def test_converting_and_loading_read_files_into_memory(
    to: Literal["dashq", "bitnest"], tmp_path: Path
) -> None:
    source = save_model(tmp_path / "model", "llama")
    convert(source, tmp_path / "expected", to=to, group_size=16)
    with elsewhere():
        convert(source, tmp_path / "found", to=to, group_size=16)
        model = load_model(tmp_path / "found")
    names = sorted(path.name for path in (tmp_path / "expected").iterdir())
    for name in names:
        expected, found = (tmp_path / folder / name for folder in ("expected", "found"))
        assert found.read_bytes() == expected.read_bytes(), name
    ids = torch.arange(8)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, load_model(tmp_path / "expected")(ids).logits)


@pytest.mark.parametrize("to", ["dashq", "bitnest"])
def test_a_model_on_the_meta_device_is_the_model_without_its_data(
    to: Literal["dashq", "bitnest"], tmp_path: Path
) -> None:
    convert(save_model(tmp_path / "model", "qwen2"), tmp_path / "out", to=to, group_size=16)
    empty = load_model(tmp_path / "out", device="meta")
    found = {name: (one.device.type, one.dtype, one.shape) for name, one in tensors(empty)}
    assert found == {
        name: ("meta", one.dtype, one.shape) for name, one in tensors(load_model(tmp_path / "out"))
    }
    ids = torch.zeros(1, 5, dtype=torch.int64, device="meta")
    assert empty(ids).logits.shape == (1, 5, 80)


def tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]
