"""The package list, the tree and the wheel hold the same modules and data."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]


def folder_of(package: str) -> Path:
    """Map a package name to its folder as the package-dir table does."""
    for prefix, folder in FOLDERS.items():
        if package == prefix or package.startswith(f"{prefix}."):
            return ROOT / folder / package[len(prefix) :].lstrip(".").replace(".", "/")
    raise AssertionError(f"{package} has no entry in package-dir")


def test_every_package_of_the_tree_is_listed() -> None:
    in_tree = {
        init.parent for folder in FOLDERS.values() for init in (ROOT / folder).rglob("__init__.py")
    }
    assert in_tree == {folder_of(package) for package in SETUPTOOLS["packages"]}


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Build a wheel from a copy of the tracked and new files and list what is in it."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    for name in filter(None, listed):
        relative = Path(name.decode())
        if (ROOT / relative).is_file():
            (source / relative).parent.mkdir(parents=True, exist_ok=True)
            (source / relative).write_bytes((ROOT / relative).read_bytes())
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(target), str(source)],
        check=True,
    )
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_every_module(wheel_names: set[str]) -> None:
    expected = {
        f"{package.replace('.', '/')}/{module.name}"
        for package in SETUPTOOLS["packages"]
        for module in folder_of(package).glob("*.py")
    }
    assert expected <= wheel_names


def test_wheel_holds_the_text_the_schemas_and_the_type_markers(wheel_names: set[str]) -> None:
    data = {
        f"nibblespec/{path.relative_to(ROOT)}"
        for pattern in (
            "spec/**/*.md",
            "schemas/*.json",
            "*/py.typed",
            "conformance/**/*.json",
            "conformance/vectors/**/*.md",
            "conformance/**/*.safetensors",
        )
        for path in ROOT.glob(pattern)
    }
    assert data <= wheel_names


def test_wheel_holds_no_tests_of_the_project(wheel_names: set[str]) -> None:
    assert not [name for name in wheel_names if name.startswith(("tests/", "nibblespec/tests/"))]
