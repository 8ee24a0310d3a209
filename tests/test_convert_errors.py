"""What a conversion says of models that it cannot convert."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from nibblespec.optimized.convert import ConversionError, convert
from nibblespec.spec.formats import read_manifest
from nibblespec.spec.json_strict import MAX_BYTES
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.convert_models import save_model

Target = Literal["dashq", "bitnest"]
Edit = Callable[[dict[str, Tensor]], object]

Q = "model.layers.1.self_attn.q_proj.weight"
EXPERTS = "model.layers.0.mlp.experts"


def model(folder: Path, name: str = "llama", edit: Edit = lambda _: None) -> Path:
    """Save a tiny model with its tensors edited."""
    save_model(folder, name)
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def configure(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **values}))


def expect_refusal(source: Path, target: Target, message: str, **options: Any) -> None:  # noqa: ANN401
    new = source.parent / "new"
    with pytest.raises(ConversionError, match=message):
        convert(source, new / "out", to=target, group_size=16, **options)
    assert not (new / "out").exists()


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_folder_that_is_not_there(target: Target, tmp_path: Path) -> None:
    expect_refusal(
        tmp_path / "nothing", target, "nothing: expected the folder of a Hugging Face model"
    )


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_folder_without_config_json(target: Target, tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    (source / "config.json").unlink()
    expect_refusal(source, target, r"config\.json: is not there")


def test_a_config_json_that_is_none(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    (source / "config.json").write_text("{")
    expect_refusal(source, "dashq", r"config\.json: expected a JSON document")
    (source / "config.json").write_text("[]")
    expect_refusal(source, "dashq", r"config\.json: expected a JSON object, found list")


def test_a_folder_without_safetensors(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    expect_refusal(source, "dashq", r"found neither; .* save_pretrained")


def test_a_model_that_is_quantized_already(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    configure(source, quantization_config={"quant_method": "gptq"})
    expect_refusal(source, "dashq", "quantized already")


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_weight_of_another_dtype(target: Target, tmp_path: Path) -> None:
    source = model(
        tmp_path / "model", edit=lambda tensors: tensors.update({Q: tensors[Q].to(torch.int8)})
    )
    expect_refusal(
        source, target, r"layers\.1\.self_attn\.q_proj\.weight: expected BF16, .*found I8"
    )


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_weight_that_is_not_finite(target: Target, tmp_path: Path) -> None:
    source = model(tmp_path / "model", edit=lambda tensors: tensors[Q][5, 7].fill_(torch.nan))
    expect_refusal(
        source, target, r"layers\.1\.self_attn\.q_proj, rows 0 to 63: expected finite weights"
    )


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
@pytest.mark.parametrize(
    "name", ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
)
def test_a_tensor_that_is_kept_and_not_finite(name: str, target: Target, tmp_path: Path) -> None:
    source = model(
        tmp_path / "model", edit=lambda tensors: tensors[name].view(-1)[3].fill_(torch.inf)
    )
    expect_refusal(source, target, rf"{name}: expected finite elements, found an infinity or a NaN")


def test_a_weight_without_rows(tmp_path: Path) -> None:
    source = model(
        tmp_path / "model", edit=lambda tensors: tensors.update({Q: tensors[Q][:0].clone()})
    )
    expect_refusal(source, "dashq", r"layers\.1\.self_attn\.q_proj: expected a weight with rows")


def test_a_tensor_that_is_in_two_files(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    save_file({Q: tensors[Q]}, source / "other.safetensors")
    weight_map = {**dict.fromkeys(tensors, "model.safetensors"), Q: "other.safetensors"}
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    expect_refusal(source, "dashq", rf"{Q}: is in model\.safetensors too; expected it once")


def test_a_tensor_that_is_missing(tmp_path: Path) -> None:
    source = model(tmp_path / "model", edit=lambda tensors: tensors.pop(Q))
    expect_refusal(
        source, "bitnest", r"expected the tensor model\.layers\.1\.self_attn\.q_proj\.weight"
    )


def test_a_decoder_layer_that_is_missing(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    configure(source, num_hidden_layers=3)
    expect_refusal(source, "dashq", "num_hidden_layers 3, but no linear layer of decoder layer 2")
    expect_refusal(source, "bitnest", r"expected the tensor model\.layers\.2\.")


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    configure(source, intermediate_size=128)
    expect_refusal(
        source, "bitnest", r"gate_proj\.weight: expected shape \[128, 64\], .*found \[96, 64\]"
    )


def test_a_tensor_that_a_package_has_no_place_for(tmp_path: Path) -> None:
    extra = "model.layers.0.self_attn.q_norm.weight"
    source = model(tmp_path / "model", edit=lambda tensors: tensors.update({extra: torch.ones(16)}))
    expect_refusal(source, "bitnest", r"q_norm\.weight: a llama has no such tensor")


@pytest.mark.parametrize("value", [None, 0, True, "64"])
def test_a_size_that_config_json_lacks(value: object, tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    configure(source, hidden_size=value)
    expect_refusal(source, "bitnest", "hidden_size: expected an integer of at least 1")


def test_a_model_without_linear_layers(tmp_path: Path) -> None:
    source = model(tmp_path / "model", edit=lambda tensors: tensors.clear())
    save_file(
        {"transformer.h.0.attn.c_attn.weight": torch.ones(4, 4)}, source / "model.safetensors"
    )
    configure(source, model_type="gpt2")
    expect_refusal(
        source, "dashq", r"found none \(model_type 'gpt2'\); this architecture is not supported"
    )


def test_experts_that_are_stored_transposed(tmp_path: Path) -> None:
    def transpose(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if ".experts." in name]:
            del tensors[name]
        tensors[f"{EXPERTS}.gate_up_proj"] = torch.ones(4, 64, 96)
        tensors[f"{EXPERTS}.down_proj"] = torch.ones(4, 48, 64)

    source = model(tmp_path / "model", "qwen3_moe", transpose)
    expect_refusal(source, "dashq", r"found \[4, 64, 96\] and \[4, 48, 64\]; .*not supported")


def test_an_expert_that_lacks_a_part(tmp_path: Path) -> None:
    source = model(
        tmp_path / "model",
        "qwen3_moe",
        lambda tensors: tensors.pop(f"{EXPERTS}.2.down_proj.weight"),
    )
    expect_refusal(source, "dashq", r"experts\.2: expected down_proj, found none")


def test_experts_with_biases(tmp_path: Path) -> None:
    bias = f"{EXPERTS}.0.up_proj.bias"
    source = model(
        tmp_path / "model", "qwen3_moe", lambda tensors: tensors.update({bias: torch.ones(48)})
    )
    expect_refusal(source, "dashq", "experts with biases are not supported")


def test_a_bias_of_another_dtype_than_its_weight(tmp_path: Path) -> None:
    bias = Q.replace("weight", "bias")
    source = model(
        tmp_path / "model",
        "qwen2",
        lambda tensors: tensors.update({bias: tensors[bias].to(torch.float32)}),
    )
    expect_refusal(source, "dashq", r"q_proj\.bias: expected BF16, as its weight has, found F32")


@pytest.mark.parametrize("kept", [0, 7, 100, 40_000])
def test_a_file_that_is_cut_off(kept: int, tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    data = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(data[:kept])
    expect_refusal(source, "dashq", r"model\.safetensors: (expected a safetensors file|is cut off)")


def test_a_header_that_is_none(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    for header in (b"[1]", b"nonsense", b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}'):
        data = len(header).to_bytes(8, "little") + header + bytes(8)
        (source / "model.safetensors").write_bytes(data)
        expect_refusal(source, "dashq", "expected the header of a safetensors file")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {Q: "gone.safetensors"}}, r"names gone\.safetensors, not in the folder"),
        ({"weight_map": {Q: "../model.safetensors"}}, "expected an object weight_map"),
        ({"weight_map": {"other": "model.safetensors"}}, "names other, which the file lacks"),
        ({}, "expected an object weight_map"),
    ],
)
def test_an_index_that_does_not_fit(index: object, message: str, tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    expect_refusal(source, "dashq", message)


def test_a_pipe_in_the_place_of_a_document(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    for name in ("model.safetensors.index.json", "config.json"):
        (source / name).unlink(missing_ok=True)
        os.mkfifo(source / name)
        expect_refusal(source, "dashq", rf"{name}: is no file")


ROPE = {"rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        ("bitnest", {"hidden_act": "gelu"}, "hidden_act: expected silu, found gelu"),
        ("bitnest", {"rope_parameters": ROPE | {"rope_type": "dynamic", "factor": 2.0}}, "rope_ty"),
        ("bitnest", {"rope_parameters": ROPE | {"rope_type": "yarn"}}, "transformers cannot read"),
        ("bitnest", {"rope_parameters": 3}, "transformers cannot read it"),
        ("bitnest", {"rope_parameters": {"rope_theta": "x"}}, r"rope\.theta: Input should be"),
        ("bitnest", {"dtype": "int8"}, "dtype: expected float16, bfloat16 or float32, found"),
        ("dashq", {"hidden_act": "no such"}, "cannot build it: 'no such'"),
        ("dashq", {"rope_parameters": {"rope_theta": "x"}}, "cannot build it"),
        ("dashq", {"vocab_size": "80"}, "transformers cannot read it"),
        ("dashq", {"num_hidden_layers": 1}, r"layers\.1\..*: expected a linear layer of Llama"),
    ],
)
def test_a_configuration_that_the_loader_refuses(
    target: Target, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = model(tmp_path / "model")
    configure(source, **values)
    expect_refusal(source, target, rf"config\.json.*{message}|{message}.*load_model would refuse")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda found: found.update({"mtp.x": torch.ones(2)}), r"mtp\.x: nothing in LlamaForC"),
        (lambda found: found.pop("model.norm.weight"), r"no tensor .* is for model\.norm\.weight"),
        (lambda found: found.update({Q: found[Q].float()}), "linear_dtype: expected one for all"),
    ],
)
def test_tensors_that_the_loader_refuses(edit: Edit, message: str, tmp_path: Path) -> None:
    expect_refusal(model(tmp_path / "model", edit=edit), "dashq", message)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_generation_configuration_that_the_loader_refuses(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    (source / "generation_config.json").write_text("[]")
    expect_refusal(source, "dashq", r"generation_config\.json: transformers cannot read it")


def test_where_there_is_no_loader_it_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where transformers does not know the architecture, or is not installed."""
    source = model(tmp_path / "model")
    configure(source, model_type="later than this")
    convert(source, tmp_path / "unknown", to="dashq")
    assert read_manifest(tmp_path / "unknown")
    configure(source, model_type="llama", hidden_act="gelu")
    monkeypatch.setitem(sys.modules, "transformers", None)
    convert(source, tmp_path / "without", to="bitnest", group_size=16)
    assert read_manifest(tmp_path / "without")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "gptq"}, "to: expected dashq or bitnest, found 'gptq'"),
        ({"to": "dashq", "bits": 9}, "bits: expected 1 … 8, found 9"),
        ({"to": "dashq", "bits": 4.0}, "bits: expected an integer, found 4.0"),
        ({"to": "dashq", "group_size": 0}, "group_size: expected at least 1, found 0"),
        ({"to": "dashq", "group_size": "32"}, "group_size: expected an integer, found '32'"),
        ({"to": "bitnest", "seed": -1}, "seed: expected at least 0, found -1"),
        ({"to": "dashq", "shard_bytes": 0}, "shard_bytes: expected at least 1, found 0"),
        ({"to": "dashq", "base_model": "o/\udcff"}, r"base_model: expected OWNER/NAME, found 'o/"),
        ({"to": "dashq", "calibrate": ""}, "calibrate: the path is empty"),
    ],
)
def test_arguments_out_of_range(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        convert(tmp_path, tmp_path / "out", **options)


def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model(tmp_path / "model"))
    for paths, name in ((("", "../out"), "model_dir"), ((".", ""), "out")):
        with pytest.raises(ConversionError, match=f"{name}: the path is empty"):
            convert(*paths, to="dashq")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "option"),
    [
        ("bitnest", {"bits": 4}),
        ("bitnest", {"shard_bytes": 1}),
        ("dashq", {"rotate": True}),
        ("dashq", {"online_hadamard": False}),
        ("dashq", {"nest_head": False}),
        ("dashq", {"seed": 0}),
    ],
)
def test_an_option_of_the_other_format(
    target: Target, option: dict[str, Any], tmp_path: Path
) -> None:
    name = next(iter(option))
    expect_refusal(model(tmp_path / "model"), target, f"{name}: expected none for", **option)


def test_a_config_json_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    with (source / "config.json").open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    expect_refusal(source, "dashq", r"config\.json: expected the model's .*found a larger file")


@pytest.mark.parametrize("target", ["dashq", "bitnest"])
def test_a_lone_surrogate_in_config_json_is_kept(target: Target, tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    configure(source, note="\udcff")
    convert(source, tmp_path / "out", to=target, group_size=16)
    assert json.loads((tmp_path / "out" / "config.json").read_bytes())["note"] == "\udcff"


def test_a_document_whose_name_is_no_text_is_left_behind(tmp_path: Path) -> None:
    source = model(tmp_path / "model")
    for name in ("tokenizer\udcff", "tokenizer\n"):
        (source / name).write_text("{}")
    convert(source, tmp_path / "out", to="bitnest", group_size=16)
    assert list((tmp_path / "out").glob("tokenizer*")) == []
