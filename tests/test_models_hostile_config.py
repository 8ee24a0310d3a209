"""A config.json that no model can be made of is refused, whatever transformers makes of it."""

import json
import shutil
from pathlib import Path
from typing import Literal

import pytest
from nibblespec.optimized import load_model
from nibblespec.optimized.convert import convert
from nibblespec.optimized.models import LoadError

from tests.convert_models import save_model


@pytest.fixture(scope="module", params=["dashq", "bitnest"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    target: Literal["dashq", "bitnest"] = request.param
    convert(save_model(folder / "model", "llama"), folder / "out", to=target, group_size=16)
    return folder / "out"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention_bias", 0),
        ("hidden_size", 65),
        ("hidden_size", "64"),
        ("head_dim", 0),
        ("num_attention_heads", 0),
        ("num_attention_heads", -1),
        ("num_key_value_heads", 0),
        ("intermediate_size", -1),
        ("num_hidden_layers", None),
        ("num_hidden_layers", 10**12),
        ("vocab_size", 4.5),
        ("pad_token_id", 10**30),
        ("dtype", "no such"),
        ("dtype", []),
        ("rope_parameters", 3),
        ("model_type", "no such"),
        ("model_type", {}),
        ("text_config", {}),
        ("text_config", "x"),
    ],
)
def test_a_value_that_makes_no_model_is_refused_in_one_line(
    original: Path, tmp_path: Path, key: str, value: object
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(original, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(LoadError) as caught:
        load_model(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["float64", "int32"])
def test_a_dtype_that_no_operation_takes_is_refused(tmp_path: Path, value: str) -> None:
    source = save_model(tmp_path / "model", "llama")
    convert(source, tmp_path / "out", to="bitnest", group_size=16)
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dtype": value}))
    with pytest.raises(LoadError, match="dtype: expected float16, bfloat16 or float32"):
        load_model(tmp_path / "out")
