"""The file that the chapter on files describes: built, and read by the safetensors library."""

import re
from importlib.resources import files

import numpy as np
from safetensors.numpy import load

TEXT = files("nibblespec.spec").joinpath("files.md").read_text(encoding="utf-8")


def test_a_file_with_one_tensor() -> None:
    [header] = re.findall(r"^(\{\"__metadata__\".*\})$", TEXT, re.M)
    text = " ".join(TEXT.split())
    padding = -len(header) % 8
    assert f"It has {len(header)} characters, so that with {padding} spaces" in text
    [start] = re.findall(
        r"^`((?:[0-9A-F]{2} ){7}00)` and has 8 \+ 96 \+ 12 = 116 bytes", TEXT, re.M
    )
    scale = np.arange(6, dtype=np.float16).reshape(2, 3)
    file = bytes.fromhex(start) + (header + " " * padding).encode() + scale.tobytes()
    assert len(file) == 116
    assert np.array_equal(load(file)["a.scale"], scale)
    assert file[104 + 6 : 104 + 8] == scale[1, 0].tobytes()
