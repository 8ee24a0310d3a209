"""The site, built once for all tests of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.website.blocks import DOCS, ROOT
from tests.website.browser import Browser, find_chromium
from tests.website.server import SUBPATH, Server

sys.path.insert(0, str(DOCS))  # sitegen, which makes pages, lies there


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site, which lies in a sub-path of a server's root."""
    folder = tmp_path_factory.mktemp("site") / SUBPATH
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[Server]:
    """Serve the folder above the site, and note every request."""
    with Server(site.parents[1]) as running:
        yield running


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start Chromium, for which a test is skipped where there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium here: expected chromium, chromium-browser or google-chrome")
    with Browser(program, tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
