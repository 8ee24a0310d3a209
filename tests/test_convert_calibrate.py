"""The calibrated fit of dashq: it makes outputs better on the text, and changes nothing else."""

import json
import os
from pathlib import Path

import pytest
import torch
from nibblespec.conformance.artifacts.validate import check_path
from nibblespec.optimized.convert import ConversionError, convert
from nibblespec.optimized.convert.calibrate import MOST_BYTES, input_energies
from nibblespec.optimized.convert.encode_dashq import Groups, encode_groups
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.convert_models import random_model, save_model, with_tokenizer

WORDS = "To be, or not to be, that is the question"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return with_tokenizer(save_model(tmp_path / "model", "llama", torch.float32, vocab_size=256))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(WORDS)
    return path


def values(groups: Groups, shape: torch.Size) -> Tensor:
    scale, zero = groups.scale.double(), groups.zero.double()
    return ((groups.codes.double() - zero) * scale).view(shape)


@pytest.mark.parametrize("nbits", [2, 3, 4])
def test_errors_weigh_less_in_all_than_when_rounded_to_nearest(nbits: int) -> None:
    generator = torch.Generator().manual_seed(nbits)
    weight = torch.randn(32, 64, generator=generator)
    importance = torch.rand(64, generator=generator, dtype=torch.float64) ** 4 + 1e-3
    plain = values(encode_groups(weight, nbits, 32), weight.shape) - weight
    fitted = values(encode_groups(weight, nbits, 32, importance), weight.shape) - weight
    before = (plain.square() * importance).view(32, 2, 32).sum(dim=2)
    after = (fitted.square() * importance).view(32, 2, 32).sum(dim=2)
    assert bool((after <= before).all())
    assert float(after.sum()) < 0.9 * float(before.sum())


def test_energies_are_the_mean_squares_of_a_layers_inputs(model: Path, text: Path) -> None:
    found, windows = input_energies(model, text)
    ids = torch.tensor([list(PreTrainedTokenizerFast.from_pretrained(model)(WORDS).input_ids)])
    dense = random_model("llama", torch.float32, vocab_size=256)
    with torch.no_grad():
        hidden = dense.model.embed_tokens(ids)
        inputs = dense.model.layers[0].input_layernorm(hidden)[0].double()
    expected = inputs.square().mean(dim=0)
    assert windows == 1
    assert torch.allclose(found["model.layers.0.self_attn.q_proj"], expected, rtol=1e-4)
    assert torch.equal(
        found["model.layers.0.self_attn.q_proj"], found["model.layers.0.self_attn.v_proj"]
    )


def test_a_calibrated_checkpoint_is_valid_and_says_how_it_was_made(
    model: Path, text: Path, tmp_path: Path
) -> None:
    convert(model, tmp_path / "out", to="dashq", bits=2, group_size=16, calibrate=text)
    assert check_path(str(tmp_path / "out"), "tensors").findings == ()
    params = json.loads((tmp_path / "out" / "dashq_config.json").read_bytes())["params"]
    assert (params["use_weighted_quantization"], params["n_samples"]) == (True, 1)


def test_experts_that_are_no_modules_are_rounded_to_nearest(text: Path, tmp_path: Path) -> None:
    source = with_tokenizer(save_model(tmp_path / "moe", "qwen3_moe", vocab_size=256))
    convert(source, tmp_path / "fitted", to="dashq", bits=2, calibrate=text)
    convert(source, tmp_path / "plain", to="dashq", bits=2)
    fitted, plain = (
        load_file(tmp_path / name / "model.safetensors") for name in ("fitted", "plain")
    )
    differ = {name for name in fitted if not torch.equal(fitted[name], plain[name])}
    assert any("q_proj" in name for name in differ)
    assert not any("experts" in name for name in differ)


def test_a_text_that_says_nothing_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ConversionError, match=r"empty\.txt: expected some thousand words"):
        convert(model, tmp_path / "out", to="dashq", calibrate=tmp_path / "empty.txt")
    with pytest.raises(ConversionError, match=r"gone\.txt: is not there; expected a text in UTF-8"):
        convert(model, tmp_path / "out", to="dashq", calibrate=tmp_path / "gone.txt")


def test_what_is_no_regular_file_is_no_text(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ConversionError, match=rf"{place}: is no file; expected a text in UTF"):
            convert(model, tmp_path / "out", to="dashq", calibrate=place)


def test_a_text_that_is_too_large_is_not_read(model: Path, tmp_path: Path) -> None:
    with (tmp_path / "large.txt").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    with pytest.raises(ConversionError, match=r"at most 16,777,216 bytes, found a larger file"):
        convert(model, tmp_path / "out", to="dashq", calibrate=tmp_path / "large.txt")


def test_a_tokenizer_that_is_none_is_refused(model: Path, text: Path, tmp_path: Path) -> None:
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(ConversionError, match="calibration needs the tokenizer, and transformers"):
        convert(model, tmp_path / "out", to="dashq", calibrate=text)


def test_an_architecture_that_transformers_lacks_is_refused(
    model: Path, text: Path, tmp_path: Path
) -> None:
    config = json.loads((model / "config.json").read_bytes())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "later than this"}))
    with pytest.raises(ConversionError, match="calibration needs the"):
        convert(model, tmp_path / "out", to="dashq", calibrate=text)


def test_bitnest_takes_no_text(model: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="calibrate: expected none for bitnest"):
        convert(model, tmp_path / "out", to="bitnest", group_size=16, calibrate=text)
