"""Checkpoints that cannot be loaded: one line that names file and tensor, and no traceback."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models import LoadError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.convert_models import random_model, save_model
from tests.packed_models import pack_model

Folder = Path
Change = Callable[[Folder], object]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("errors")
    save_model(folder / "model", "llama")
    convert(folder / "model", folder / "bitnest", to="bitnest", group_size=16)
    pack_model(random_model("llama"), folder / "dashq")
    pack_model(random_model("llama"), folder / "shards", shards=2)
    pack_model(random_model("qwen3_moe"), folder / "experts")
    return {path.name: path for path in folder.iterdir()}


def copy(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (to / file.name).write_bytes(file.read_bytes())
    return to


def tensors(file: str, change: Callable[[dict[str, Tensor]], object]) -> Change:
    def apply(folder: Folder) -> None:
        found = load_file(folder / file)
        change(found)
        save_file(found, folder / file)

    return apply


def document(file: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def apply(folder: Folder) -> None:
        found = json.loads((folder / file).read_text())
        change(found)
        (folder / file).write_text(json.dumps(found))

    return apply


def missing(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def pipe(file: str) -> Change:
    def apply(folder: Folder) -> None:
        (folder / file).unlink()
        os.mkfifo(folder / file)

    return apply


def cut(file: str) -> Change:
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:-5])


def without(name: str, file: str = "model.safetensors") -> Change:
    return tensors(file, lambda found: found.pop(name))


def extra(name: str, file: str = "model.safetensors") -> Change:
    return tensors(file, lambda found: found.update({name: torch.zeros(2)}))


def changed(name: str, how: Callable[[Tensor], Tensor], file: str = "model.safetensors") -> Change:
    return tensors(file, lambda found: found.update({name: how(found[name]).clone()}))


def first_of(file: Path) -> str:
    return min(load_file(file))


Q_PROJ = "model.layers.0.self_attn.q_proj"
PLANES, AUX, META = "planes.safetensors", "aux.safetensors", "meta.json"
SHARD = "model-00002-of-00002.safetensors"
EXPERT = "model.layers.1.mlp.experts.down_proj_list.2"

DASHQ: dict[str, tuple[Change, str]] = {
    "no manifest": (missing("dashq_config.json"), "no manifest in it"),
    "no configuration": (missing("config.json"), r"config\.json: is missing"),
    "no tensors": (missing("model.safetensors"), r"expected model\.safetensors alone or .*none"),
    "a file cut off": (cut("model.safetensors"), r"model\.safetensors: is no complete safetensors"),
    "an empty file": (
        lambda folder: (folder / "model.safetensors").write_bytes(b""),
        r"model\.safetensors: is no complete safetensors file",
    ),
    "a pipe in the place of a file": (
        pipe("model.safetensors"),
        r"model\.safetensors: is no file; expected a file of tensors",
    ),
    "a second file": (
        lambda folder: save_file({"a": torch.zeros(1)}, folder / "b.safetensors"),
        r"expected model\.safetensors alone or .*, found b\.safetensors, model\.safetensors",
    ),
    "an unknown architecture": (
        document("config.json", lambda found: found.update(model_type="lama")),
        r"config\.json: transformers cannot read it: .*lama",
    ),
    "an architecture that writes nothing": (
        document("config.json", lambda found: found.update(model_type="clip_vision_model")),
        r"clip_vision_model: AutoModelForCausalLM cannot build it",
    ),
    "no words": (
        without(f"{Q_PROJ}.W_q_packed"),
        r"q_proj\.W_q_packed: is missing, although the manifest has it",
    ),
    "no zero points": (without(f"{Q_PROJ}.zero"), r"q_proj\.zero: is missing"),
    "no norm": (
        without("model.norm.weight"),
        r"no tensor of the files is for model\.norm\.weight of LlamaForCausalLM",
    ),
    "no head": (without("lm_head.weight"), r"is for lm_head\.weight of LlamaForCausalLM"),
    "a tensor too many": (
        extra("model.layers.0.self_attn.q_norm.weight"),
        r"model\.safetensors: model\.layers\.0\.self_attn\.q_norm\.weight: nothing in Llama",
    ),
    "an unlisted module": (
        document("dashq_config.json", lambda found: found["quantized_modules"].pop(Q_PROJ)),
        r"q_proj\.W_q_packed: nothing in LlamaForCausalLM has a tensor of that name",
    ),
    "a module that is not there": (
        document(
            "dashq_config.json",
            lambda found: found["quantized_modules"].update(
                {"model.layers.9.x": found["quantized_modules"][Q_PROJ]}
            ),
        ),
        r"model\.layers\.9\.x\.W_q_packed: is missing",
    ),
    "scales in bfloat16": (
        changed(f"{Q_PROJ}.scale", lambda old: old.to(torch.bfloat16)),
        r"q_proj\.scale: expected dtype F16, found BF16",
    ),
    "scales of another shape": (
        changed(f"{Q_PROJ}.scale", lambda old: old.view(64, -1)),
        r"q_proj\.scale: expected shape \[256, 1\], found \[64, 4\]",
    ),
    "an embedding of another shape": (
        changed("model.embed_tokens.weight", lambda old: old[1:]),
        r"embed_tokens\.weight: expected shape \[80, 64\], as config\.json has it",
    ),
    "a weight beside the words": (extra(f"{Q_PROJ}.weight"), r"q_proj\.weight: nothing in Llama"),
    "another width in the configuration": (
        document("config.json", lambda found: found.update(intermediate_size=128)),
        r"gate_proj: expected out_features and in_features 128 and 64, as config\.json has them",
    ),
    "an unknown dtype": (
        document(
            "dashq_config.json",
            lambda found: found["quantized_modules"][Q_PROJ].update(scale_zero_dtype="int7"),
        ),
        "q_proj: scale_zero_dtype: expected one of .*found 'int7'",
    ),
}

SHARDS: dict[str, tuple[Change, str]] = {
    "a shard missing": (missing(SHARD), r"00002-of-00002\.safetensors: is missing"),
    "a shard cut off": (cut(SHARD), r"00002-of-00002\.safetensors: is no complete"),
    "no index": (missing("model.safetensors.index.json"), r"expected model\.safetensors alone or"),
    "a tensor in two shards": (
        lambda folder: tensors(
            "model-00001-of-00002.safetensors",
            lambda found: found.update({first_of(folder / SHARD): torch.zeros(2)}),
        )(folder),
        r"00002-of-00002\.safetensors: .*: is in model-00001-of-00002\.safetensors too",
    ),
    "a tensor that its shard lacks": (
        lambda folder: without(first_of(folder / SHARD), SHARD)(folder),
        r"index\.json: .*: expected it in .*00002-of-00002\.safetensors, which lacks it",
    ),
    "a tensor that the index lacks": (extra("more", SHARD), "expected the index to name this file"),
    "a file that the index lacks": (
        lambda folder: save_file({"a": torch.zeros(1)}, folder / "b.safetensors"),
        r"b\.safetensors: is not in model\.safetensors\.index\.json",
    ),
    "a file elsewhere": (
        document(
            "model.safetensors.index.json",
            lambda found: found["weight_map"].update({"lm_head.weight": "../x.safetensors"}),
        ),
        r"expected names of files in this folder, found '\.\./x\.safetensors'",
    ),
    "an index without a map": (
        document("model.safetensors.index.json", lambda found: found.pop("weight_map")),
        "expected an object weight_map of file names",
    ),
}

EXPERTS: dict[str, tuple[Change, str]] = {
    "an expert missing": (
        document("dashq_config.json", lambda found: found["quantized_modules"].pop(EXPERT)),
        r"down_proj_list\.2: is not in the manifest, which has others",
    ),
    "an expert of another width": (
        document(
            "dashq_config.json",
            lambda found: found["quantized_modules"].update(
                {EXPERT: found["quantized_modules"][EXPERT.replace("down", "gate_up")]}
            ),
        ),
        r"down_proj_list\.2\.W_q_packed: expected shape",
    ),
    "another number of experts": (
        document("config.json", lambda found: found.update(num_local_experts=3)),
        r"down_proj_list\.3, .*gate_up_proj_list\.3: no such experts in Qwen3Moe",
    ),
    "experts where there are none": (
        document("config.json", lambda found: found.update(mlp_only_layers=[0, 1])),
        "expected fused experts of Qwen3MoeForCausalLM, found none",
    ),
}

BITNEST: dict[str, tuple[Change, str]] = {
    "no planes": (missing(PLANES), r"planes\.safetensors: is missing"),
    "no aux": (missing(AUX), r"aux\.safetensors: is missing"),
    "a file cut off": (cut(PLANES), r"planes\.safetensors: is no complete safetensors file"),
    "no low plane": (without(f"{Q_PROJ}.lo", PLANES), r"q_proj\.lo: is missing"),
    "no final norm": (without("final_norm", AUX), r"aux\.safetensors: final_norm: is missing"),
    "no matrix": (without("had_K.12", AUX), r"had_K\.12: is missing"),
    "a matrix too many": (extra("had_K.20", AUX), r"had_K\.20: nothing in LlamaForCausalLM"),
    "a bias too many": (extra(f"{Q_PROJ}.bias", PLANES), r"q_proj\.bias: nothing in Llama"),
    "scales in bfloat16": (
        changed(f"{Q_PROJ}.scale", lambda old: old.to(torch.bfloat16), PLANES),
        r"q_proj\.scale: expected dtype F16, found BF16",
    ),
    "an embedding of another shape": (
        changed("embed_tokens", lambda old: old[1:], AUX),
        r"embed_tokens: expected shape \[80, 64\], found \[79, 64\]",
    ),
    "another architecture": (
        document("config.json", lambda found: found.update(model_type="qwen2")),
        "model_type: expected llama, found qwen2",
    ),
    "another activation function": (
        document("config.json", lambda found: found.update(hidden_act="gelu")),
        "hidden_act: expected silu, found gelu",
    ),
    "a window over the cache": (
        document("config.json", lambda found: found.update(sliding_window=4)),
        "sliding_window: expected None, found 4",
    ),
    "angles that depend on the length": (
        document(
            "config.json",
            lambda found: found["rope_parameters"].update(rope_type="dynamic", factor=2.0),
        ),
        "rope_type: expected default or linear or yarn or llama3, found dynamic",
    ),
    "a layer too few": (
        document("config.json", lambda found: found.update(num_hidden_layers=1)),
        r"model\.layers\.1\.self_attn\.q_proj.*: expected linear layers of LlamaForCausalLM",
    ),
    "a layer too many": (
        document("config.json", lambda found: found.update(num_hidden_layers=3)),
        r"model\.layers\.2\.self_attn\.q_proj: is in config\.json's model, and not in the manifest",
    ),
    "another width": (
        document("config.json", lambda found: found.update(intermediate_size=128)),
        r"gate_proj: expected shape \[128, 64\], as config\.json has it, found \[96, 64\]",
    ),
    "a tensor in the other file": (
        lambda folder: (
            without("final_norm", AUX)(folder),
            extra("final_norm", PLANES)(folder),
        )[0],
        r"final_norm: expected it in aux\.safetensors",
    ),
}

CASES = [
    pytest.param(kind, change, message, id=f"{kind}: {name}")
    for kind, cases in (
        ("dashq", DASHQ),
        ("shards", SHARDS),
        ("experts", EXPERTS),
        ("bitnest", BITNEST),
    )
    for name, (change, message) in cases.items()
]


@pytest.mark.parametrize(("kind", "change", "message"), CASES)
def test_what_is_wrong_is_named(
    originals: dict[str, Path], tmp_path: Path, kind: str, change: Change, message: str
) -> None:
    folder = copy(originals[kind], tmp_path / "out")
    load_model(folder)
    change(folder)
    with pytest.raises(LoadError, match=message) as caught:
        load_model(folder)
    assert str(caught.value).startswith(str(folder))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="nowhere: is no folder"):
        load_model(tmp_path / "nowhere")


def test_a_name_that_is_too_long_is_named() -> None:
    with pytest.raises(LoadError, match=r"^a{300}: File name too long"):
        load_model("a" * 300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"plane": "hi"}, "plane: expected draft or target, found 'hi'"),
        ({"dtype": torch.float64}, "dtype: expected float16, bfloat16, float32 or None"),
        ({"backend": "cuda"}, "backend: expected torch or optimized, found 'cuda'"),
        ({"device": "nowhere"}, "device: expected one that is there, found nowhere"),
        ({"device": "cuda:9999"}, "device: expected one that is there, found cuda:9999"),
    ],
)
def test_arguments_out_of_range_are_refused(
    originals: dict[str, Path], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_model(originals["bitnest"], **arguments)


def test_a_buffer_that_nobody_computes_is_refused(
    originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import LlamaPreTrainedModel  # noqa: PLC0415

    monkeypatch.setattr(LlamaPreTrainedModel, "_init_weights", lambda *_: None)
    with pytest.raises(LoadError, match=r"does not initialize the buffer model\.rotary_emb\.inv_f"):
        load_model(originals["dashq"])
