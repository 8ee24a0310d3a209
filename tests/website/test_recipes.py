"""The recipes for CI are valid YAML, and what they run does what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.website.blocks import DOCS, blocks


def recipe(title: str) -> Any:  # noqa: ANN401  # YAML
    """Return a recipe of the page for publishers."""
    found = [block for block in blocks(DOCS / "publishing.md") if block.title == title]
    return yaml.safe_load(found[0].text)


def run(command: str, folder: Path) -> int:
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=folder, env=environment, capture_output=True, check=False
    )
    return done.returncode


@pytest.mark.parametrize(("fault", "status"), [("", 0), (" --fault scale-nan", 1)])
def test_workflow_fails_on_a_fault_and_writes_sarif(
    tmp_path: Path, fault: str, status: int
) -> None:
    steps = recipe(".github/workflows/checkpoint.yml")["jobs"]["validate"]["steps"]
    commands = {step["name"]: step["run"] for step in steps if "run" in step}
    assert commands.pop("Install") == "pip install nibblespec"
    assert run(f"nibblespec example checkpoint{fault}", tmp_path) == 0
    assert run(commands["Validate"], tmp_path) == status
    assert run(commands["Write the findings as SARIF"], tmp_path) == 0
    assert (tmp_path / steps[-1]["with"]["sarif_file"]).stat().st_size > 0


def test_workflow_writes_and_uploads_findings_of_a_run_that_failed() -> None:
    steps = recipe(".github/workflows/checkpoint.yml")["jobs"]["validate"]["steps"]
    assert [step.get("if") for step in steps[-2:]] == ["always()", "always()"]


@pytest.mark.parametrize(("edit", "status"), [("", 0), ("sed -i 's/: 4,/: 9,/'", 1)])
def test_hook_takes_the_manifests_of_a_commit(tmp_path: Path, edit: str, status: int) -> None:
    (hook,) = recipe(".pre-commit-config.yaml")["repos"][0]["hooks"]
    name = "checkpoint/dashq_config.json"
    assert re.search(hook["files"], name)
    assert not re.search(hook["files"], "checkpoint/config.json")
    assert run("nibblespec example checkpoint", tmp_path) == 0
    assert run(f"{edit} {name}" if edit else "true", tmp_path) == 0
    assert run(f"{hook['entry']} {name}", tmp_path) == status
