"""No page of the built site has a broken link or anchor, or loads anything from elsewhere."""

from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.website.html import Page, read


@cache
def pages(site: Path) -> dict[str, Page]:
    """Return every page of the site by its path."""
    return {path.relative_to(site).as_posix(): read(path) for path in sorted(site.rglob("*.html"))}


def faults(site: Path, page: str, link: str) -> str:
    """Say what is wrong with a link of a page, nothing where it is right."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "" if parts.scheme == "https" else "neither https nor inside of the site"
    if parts.path.startswith("/"):
        return "absolute, which breaks in a sub-path"
    target = (site / page).parent / unquote(parts.path) if parts.path else site / page
    target = (target / "index.html" if target.is_dir() else target).resolve()
    if not target.is_file() or not target.is_relative_to(site.resolve()):
        return "no such file"
    name = target.relative_to(site.resolve()).as_posix()
    anchor = unquote(parts.fragment)
    if anchor and name in pages(site) and anchor not in pages(site)[name].anchors:
        return "no such anchor"
    return ""


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    broken = [
        f"{name}: {link}: {fault}"
        for name, page in pages(site).items()
        for link in sorted(set(page.links))
        if (fault := faults(site, name, link))
    ]
    assert broken == []


def test_everything_that_a_page_loads_is_in_the_site(site: Path) -> None:
    loaded = [
        f"{name}: {link}"
        for name, page in pages(site).items()
        for link in page.loads
        if urlsplit(link).netloc or faults(site, name, link)
    ]
    assert loaded == []


def test_no_anchor_is_twice_on_a_page(site: Path) -> None:
    twice = {
        f"{name}#{anchor}"
        for name, page in pages(site).items()
        for anchor in page.anchors
        if anchor[:2] != "__" and page.anchors.count(anchor) > 1
    }
    # Markup of the theme, where a name and an id say the same.
    assert {one for one in twice if not one.endswith(("#viewport", "#generator"))} == set()


def test_every_page_has_a_language_one_title_and_images_with_text(site: Path) -> None:
    for name, page in pages(site).items():
        assert page.language == "en", name
        assert page.headings.count("h1") == 1, name
        assert page.images_without_text == [], name


def test_checker_sees_broken_links(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="b.html">b</a>')
    (tmp_path / "b.html").write_text("<p>")
    for link, fault in {
        "a.html#x": "",
        "#x": "",
        "b.html#x": "no such anchor",
        "c.html": "no such file",
        "../a.html": "no such file",
        "/a.html": "absolute, which breaks in a sub-path",
        "http://example.org": "neither https nor inside of the site",
        "https://example.org": "",
    }.items():
        assert faults(tmp_path, "a.html", link) == fault


@pytest.mark.parametrize("name", ["specification/dashq-packed-linear-v1.html", "check.html"])
def test_ids_of_requirements_lead_to_their_statements(site: Path, name: str) -> None:
    text = (site / name).read_text(encoding="utf-8")
    assert "#dq1-" in text or "#bn1-" in text
