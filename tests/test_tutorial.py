"""The tutorial's script, on a tiny model of random weights."""

import subprocess
import sys
from pathlib import Path

from nibblespec.conformance import validate

from tests.convert_models import save_model, with_tokenizer

SCRIPT = Path(__file__).parent.parent / "examples" / "tutorial.py"


def test_the_script_makes_a_valid_package_and_text(tmp_path: Path) -> None:
    save_model(
        tmp_path / "model", "llama", vocab_size=256, intermediate_size=192, head_dim=64,
        max_position_embeddings=128,
    )  # fmt: skip
    with_tokenizer(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "model", "package", "Alice was"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("info BN1-GROUP-SIZE-KERNELS")
    assert lines[1].startswith("Alice was")
    assert lines[-1].startswith("40 tokens from ")
    severities = {one.severity for one in validate(str(tmp_path / "package"), level="tensors")}
    assert severities == {"info"}
