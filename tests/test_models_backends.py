"""Backends of `load_model`: by name, as operations on tensors, and on NumPy arrays."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import pytest
import torch
from nibblespec.optimized import load_model, nested_cache, torch_backend
from nibblespec.optimized.convert import convert
from nibblespec.optimized.layout import DashqLayout
from nibblespec.optimized.models.backends import operations_of
from nibblespec.optimized.pytorch import operations
from nibblespec.reference import backend as reference

from tests.convert_models import save_model
from tests.torch_samples import Call, bounded_calls, dashq_weight, exact_calls, same_bits

IDS = torch.arange(18)[None]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("backends")
    save_model(folder / "model", "qwen2", torch.float32)
    found = {}
    for to in ("dashq", "bitnest"):
        convert(folder / "model", folder / to, to=to, group_size=16)
        found[to] = folder / to
    return found


def logits(folder: Path, backend: object) -> torch.Tensor:
    model = load_model(folder, backend=backend)
    cache = {"cache": nested_cache(model, rotate=True)} if folder.name == "bitnest" else {}
    with torch.no_grad():
        found: torch.Tensor = model(IDS, **cache).logits
    return found


@pytest.mark.parametrize("to", ["dashq", "bitnest"])
@pytest.mark.parametrize("backend", ["optimized", reference], ids=["optimized", "reference"])
def test_backends_agree_on_a_model(packages: dict[str, Path], to: str, backend: object) -> None:
    expected = logits(packages[to], "torch")
    torch.testing.assert_close(logits(packages[to], backend), expected, rtol=1e-4, atol=1e-4)


def test_operations_are_taken_as_they_are() -> None:
    assert operations_of(operations) is operations
    assert operations_of("torch") is operations


def test_another_name_is_refused() -> None:
    with pytest.raises(ValueError, match="backend: expected torch or optimized, found 'triton'"):
        operations_of("triton")


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(TypeError, match="backend: expected torch, optimized, Operations or an"):
        operations_of(3)


def test_an_operation_that_is_not_there_is_named_when_it_is_called() -> None:
    partial = SimpleNamespace(name="half", pack_words=reference.pack_words)
    wrapped = operations_of(partial)
    codes = torch.tensor([1, 2], dtype=torch.uint8)
    assert torch.equal(wrapped.pack_words(codes, 4), operations.pack_words(codes, 4))
    with pytest.raises(TypeError, match="backend half: expected the operation unpack_words"):
        wrapped.unpack_words(torch.zeros(1, dtype=torch.int32), 4, 2)


@pytest.mark.parametrize("call", [*exact_calls(), *bounded_calls()], ids=str)
def test_a_wrapped_backend_gives_the_bits_that_it_computes(call: Call) -> None:
    """The torch backend, through NumPy and back, and as it is."""
    expected = getattr(operations, call.operation)(*call.arguments)
    found = getattr(operations_of(torch_backend), call.operation)(*call.arguments)
    assert same_bits(found, expected)


def test_a_backend_gets_what_the_specification_promises() -> None:
    """Arrays that are read-only, dtypes of ml_dtypes, names of dtypes, and a Module."""
    seen: list[Any] = []

    def dashq_linear(*given: Any) -> Any:  # noqa: ANN401
        seen.extend(given)
        return torch_backend.dashq_linear(*given)

    layout = DashqLayout(nbits=4, group_size=8, rows=3, columns=12, stored_columns=16)
    weight = dashq_weight(layout, torch.float8_e5m2, 0)
    x = torch.ones(2, 12, dtype=torch.bfloat16)
    wrapped = operations_of(SimpleNamespace(dashq_linear=dashq_linear))
    assert wrapped.dashq_linear(x, *weight, None, layout).dtype == torch.bfloat16
    tokens, words, scale, zero, bias, module = seen
    assert tokens.dtype == ml_dtypes.bfloat16
    assert scale.dtype == zero.dtype == ml_dtypes.float8_e5m2
    assert not any(array.flags.writeable for array in (tokens, words, scale, zero))
    assert bias is None
    assert (module.nbits, module.group_size, module.num_groups) == (4, 8, 6)
    assert (module.out_features, module.in_features, module.quant_in_features) == (3, 12, 16)
    assert (module.scale_zero_dtype, module.linear_dtype) == ("float8_e5m2", "bfloat16")


def test_transformers_may_be_imported_before_the_interpreter_is_needed() -> None:
    """It imports Triton, which has to know by then that it is to interpret."""
    code = (
        "from nibblespec.optimized import load_model; "
        "from nibblespec.optimized.models.backends import operations_of; operations_of('optimized')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
