"""The drawings of the specification: well-formed, described, referred to, and true."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from nibblespec.reference.planes import pack_planes
from nibblespec.reference.words import pack_words

SPEC = Path(__file__).parent.parent / "spec"
FIGURES = sorted((SPEC / "figures").glob("*.svg"))
NAMESPACE = "{http://www.w3.org/2000/svg}"

_IMAGE = re.compile(r"!\[(?P<alt>[^\]]+)\]\((?P<target>[^)]+\.svg)\)")


def images() -> list[tuple[Path, str]]:
    """Return the drawing and the text in its place of every image of the text."""
    return [
        ((path.parent / match["target"]).resolve(), match["alt"])
        for path in SPEC.rglob("*.md")
        for match in _IMAGE.finditer(path.read_text(encoding="utf-8"))
    ]


def words_of(name: str) -> list[str]:
    """Return the texts of a drawing, in its order."""
    root = ET.parse(SPEC / "figures" / f"{name}.svg").getroot()
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def test_the_text_shows_every_drawing_and_has_every_drawing_that_it_shows() -> None:
    assert {path for path, _ in images()} == set(FIGURES)


def test_every_image_has_a_text_in_its_place() -> None:
    assert all(len(alt) > 40 for _, alt in images())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_a_drawing_is_described_for_those_who_do_not_see_it(figure: Path) -> None:
    root = ET.parse(figure).getroot()
    assert (root.tag, root.get("role")) == (f"{NAMESPACE}svg", "img")
    title, description = root.find(f"{NAMESPACE}title"), root.find(f"{NAMESPACE}desc")
    assert title is not None
    assert title.text
    assert description is not None
    assert description.text
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda path: path.stem)
def test_a_drawing_is_readable_in_light_and_dark_and_asks_for_nothing(figure: Path) -> None:
    text = figure.read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in text
    outside = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"http|url\(|<script|<image|@import|href", outside)
    assert "\n\n" not in text  # a blank line would end it where a page holds it


def test_the_words_in_the_drawing_are_those_of_the_codes() -> None:
    four, three = pack_words(np.arange(8, dtype=np.uint8), 4), np.arange(10, dtype=np.uint8) % 8
    words = words_of("dashq-words")
    assert f"b = 4: eight codes, 0x{int(four.view(np.uint32)[0]):08X}" in words
    word = int(pack_words(three, 3).view(np.uint32)[0])
    assert f"b = 3: ten codes and two spare bits, 0x{word:08X}" in words
    bits = [f"{word >> 3 * place & 7:03b}" for place in range(10)]
    assert [one for one in words if re.fullmatch("[01]{3}", one)] == bits


def test_the_bytes_in_the_drawing_are_those_of_the_codes() -> None:
    words = words_of("nibble-planes")
    codes = {
        int(match[1]): int(match[2].replace("−", "-"))
        for match in (re.fullmatch(r"col (\d): (−?\d)", one) for one in reversed(words))
        if match
    }
    residuals = [
        (int(match[1]), int(match[2].replace("−", "-")))
        for match in (re.fullmatch(r"col (\d): (−?\d)", one) for one in words)
        if match
    ][6:]
    q4 = np.array([[codes[k] for k in range(6)]], np.int8)
    qr = np.array([[dict(residuals)[k] for k in range(6)]], np.int8)
    planes = pack_planes(q4, qr)
    drawn = [match[1] for match in (re.fullmatch(r"byte \d = (..)", one) for one in words) if match]
    assert drawn == [f"{byte:02X}" for plane in planes for byte in plane[0].tolist()]
    assert "".join(one for one in words if re.fullmatch("[01]{4}", one)) == "".join(
        f"{byte:08b}" for plane in planes for byte in plane[0].tolist()
    )
