"""The checkpoint that the chapter on dashq prints byte by byte: read, validated, and computed."""

import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from nibblespec.conformance import validate
from nibblespec.reference.dashq import dashq_linear, dashq_reconstruct
from nibblespec.spec.dashq_packed_linear.v1.manifest import Manifest
from nibblespec.spec.formats import read_manifest
from safetensors.numpy import load_file

TEXT = files("nibblespec.spec").joinpath("dashq_packed_linear/v1/specification.md")
CHAPTER = TEXT.read_text(encoding="utf-8").partition("## 9. Example: a whole checkpoint")[2]
X = (1, -1, 2, 0.5, 1, 1, -2, 4, 8, 0, -1, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the three files as the text gives them."""
    manifest, header = re.findall(r"^```json\n(.*?)\n```$", CHAPTER, re.M | re.S)
    rows = re.findall(r"^\| `(proj\.\w+)` \| `([0-9A-F ]+)` \|", CHAPTER, re.M)
    [length] = re.findall(r"^`([0-9A-F ]{23})`; the header", CHAPTER, re.M)
    data = b"".join(bytes.fromhex(values) for _, values in rows)
    (tmp_path / "dashq_config.json").write_text(manifest, encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type":"llama"}', encoding="utf-8")
    file = bytes.fromhex(length) + header.encode() + data
    assert len(file) == 244
    (tmp_path / "model.safetensors").write_bytes(file)
    return tmp_path


def test_the_checkpoint_is_valid_in_every_respect(folder: Path) -> None:
    assert list(validate(folder, level="tensors")) == []


def test_its_tensors_are_what_the_text_says(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name, values in re.findall(r"^\| `(proj\.\w+)` \| `[0-9A-F ]+` \| (.*) \|$", CHAPTER, re.M):
        listed = [value.strip("`").replace("−", "-") for value in values.split(", ")]
        found = tensors[name].reshape(-1).tolist()
        assert found == [float(one) if "x" not in one else int(one, 16) for one in listed]


def test_its_weight_and_a_product_with_it(folder: Path) -> None:
    manifest, tensors = read_manifest(folder), load_file(folder / "model.safetensors")
    assert isinstance(manifest, Manifest)
    operands = tensors["proj.W_q_packed"], tensors["proj.scale"], tensors["proj.zero"]
    module = manifest.quantized_modules["proj"]
    weight = dashq_reconstruct(*operands, module, "bfloat16").astype(np.float64)
    for n in range(2):
        cells = [weight[n, k : k + 4].tolist() for k in (0, 4, 8)]
        listed = (", ".join(f"{value:g}" for value in cell).replace("-", "−") for cell in cells)
        assert f"| {n} | {' | '.join(listed)} |" in CHAPTER

    text = " ".join(CHAPTER.split())
    assert ", ".join(f"{value:g}" for value in X).replace("-", "−") in text
    x = np.array([X], bfloat16)
    for bias, expected in ((None, "`0x4024` and `0x40EA`"), (0x3C40, "`0x4025` and `0x40EA`")):
        given = None if bias is None else np.full(2, bias, np.uint16).view(bfloat16)
        y = dashq_linear(x, *operands, given, module)
        assert " and ".join(f"`0x{code:04X}`" for code in y[0].view(np.uint16)) == expected
        assert expected in text
