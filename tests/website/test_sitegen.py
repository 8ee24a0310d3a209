"""How text from elsewhere becomes pages, and ids become links."""

import pytest

from tests.website.blocks import ROOT


def test_ids_in_text_and_code_become_links() -> None:
    from sitegen.references import linked  # noqa: PLC0415  # found once conftest.py is loaded

    link = '<a href="files.html#json-size">JSON-SIZE</a>'
    assert linked("<p>See JSON-SIZE.</p>", "specification/x.html") == f"<p>See {link}.</p>"
    assert linked("<code>JSON-SIZE</code>", "specification/x.html") == f"<code>{link}</code>"
    assert 'href="specification/files.html#json-size"' in linked("JSON-SIZE", "index.html")


@pytest.mark.parametrize(
    "html",
    [
        "<h2>JSON-SIZE</h2>",
        '<a href="#x"><strong>JSON-SIZE</strong></a>',
        "<pre><code>JSON-SIZE</code></pre>",
        "<p>NO-SUCH-ID, X-JSON-SIZE, JSON-SIZE-X, json-size</p>",
        '<img alt="JSON-SIZE">',
    ],
)
def test_headings_links_blocks_and_other_words_stay(html: str) -> None:
    from sitegen.references import linked  # noqa: PLC0415

    assert linked(html, "index.html") == html


def test_a_link_after_a_heading_is_made() -> None:
    from sitegen.references import linked  # noqa: PLC0415

    assert linked("<h2>A</h2><p>JSON-SIZE</p>", "index.html").count("<a ") == 1


@pytest.mark.parametrize(
    ("source", "page"),
    [
        ("files.md", "specification/files.md"),
        ("exec_protocol.md", "specification/exec-protocol.md"),
        ("bitnest_package/v1/specification.md", "specification/bitnest-package-v1.md"),
    ],
)
def test_a_chapter_keeps_its_address(source: str, page: str) -> None:
    """Others link to these: a change of the rule would break their links."""
    from sitegen.sources import page_of_chapter  # noqa: PLC0415

    assert page_of_chapter(source) == page


def test_links_between_files_become_links_between_pages() -> None:
    from sitegen.sources import prepared  # noqa: PLC0415

    page = "specification/bitnest-package-v1.md"
    assert prepared(page, "[F](../../files.md#2)") == "[F](files.md#2)"
    assert prepared("changelog.md", "[F](spec/files.md)") == "[F](specification/files.md)"
    assert prepared("contributing.md", "[V](docs/validating.md)") == "[V](validating.md)"


def test_links_to_code_keep_their_words_alone() -> None:
    from sitegen.sources import prepared  # noqa: PLC0415

    assert (ROOT / "LICENSE").is_file()
    assert prepared("changelog.md", "see [the licence](LICENSE).") == "see the licence."


def test_links_that_lead_nowhere_and_blocks_of_code_stay() -> None:
    from sitegen.sources import prepared  # noqa: PLC0415

    for text in ("[F](no-such-file.md)", "```text\n[F](spec/files.md)\n```\n"):
        assert prepared("changelog.md", text) == text


def test_a_statement_is_a_link_target() -> None:
    from sitegen.sources import prepared  # noqa: PLC0415

    text = "**JSON-SIZE** (MUST, manifest) A document"
    anchor = '<a id="json-size" href="#json-size">**JSON-SIZE**</a>'
    assert prepared("specification/files.md", text) == f"{anchor} (MUST, manifest) A document"
