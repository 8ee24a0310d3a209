"""MkDocs hooks: pages from elsewhere in the repository, pages made from code, links to ids."""

from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from sitegen import checker, matrix, references, results, rules, schemas, sources, versions
from sitegen.packages import link_tree

_LINKS = TemporaryDirectory(prefix="nibblespec-site-")

GENERATED = {
    "requirements.md": matrix.page,
    "rules.md": rules.page,
    "schemas.md": schemas.page,
    "results.md": results.page,
    "specification/versions.md": versions.page,
    "assets/check/formats.js": checker.formats_module,
}


@event_priority(100)  # before mkdocstrings, which reads it in the same event
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show mkdocstrings where the packages are: it reads their sources and imports nothing."""
    if not any(Path(_LINKS.name).iterdir()):
        link_tree(Path(_LINKS.name))
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [_LINKS.name]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in docs/."""
    for name, path in sources.pages().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, path in schemas.files().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, make in GENERATED.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Prepare the pages that are files from elsewhere, and fill in what a page asks for."""
    if page.file.src_uri in sources.pages():
        markdown = sources.prepared(page.file.src_uri, markdown)
    return checker.filled_in(markdown) if page.file.src_uri == "check.md" else markdown


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Link requirement ids to their statements."""
    return references.linked(html, page.url)


def on_post_build(config: MkDocsConfig) -> None:
    """Remove the page for what is not found: its addresses begin at the root of a server."""
    Path(config.site_dir, "404.html").unlink(missing_ok=True)
