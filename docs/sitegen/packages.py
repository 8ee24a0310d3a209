"""The packages as the tree that their names promise: nibblespec/spec is spec/, and so on."""

import tomllib
from pathlib import Path

from sitegen.sources import ROOT


def link_tree(folder: Path) -> None:
    """Fill a folder with a link for each package, so that their sources are found unimported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for name, place in project["tool"]["setuptools"]["package-dir"].items():
        link = folder.joinpath(*name.split("."))
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT / place, target_is_directory=True)
