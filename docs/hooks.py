"""MkDocs hooks: the specification pages come from spec/, and every requirement is a link target."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

SPEC = Path(__file__).parent.parent / "spec"
PAGES = {
    "specification/files.md": "files.md",
    "specification/numerics.md": "numerics.md",
    "specification/dashq-packed-linear-v1.md": "dashq_packed_linear/v1/specification.md",
    "specification/bitnest-package-v1.md": "bitnest_package/v1/specification.md",
}
_STATEMENT = re.compile(
    r"^\*\*([A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+)\*\*(?= \((?:MUST|SHOULD|MAY),)", re.M
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the normative text, which lives beside the code that reads it."""
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(SPEC / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Give every statement an anchor: its id in lower case."""
    if page.file.src_uri not in PAGES:
        return markdown
    return _STATEMENT.sub(
        lambda match: f'<a id="{match[1].lower()}" href="#{match[1].lower()}">**{match[1]}**</a>',
        markdown,
    )
