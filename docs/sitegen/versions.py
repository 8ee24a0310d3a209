"""The versions of the specification: where each is, and what stays as it is."""

from nibblespec.schemas import schema_text
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.requirements import requirements

from sitegen.sources import page_of_chapter
from sitegen.tables import table

TEXT = """# Every version

A version of a format has a chapter, a JSON Schema and ids of its own, and each carries the version
in its name. All versions are in this site:

{table}

An address stays: a chapter's page, a schema's file and a statement's anchor (its id in lower case)
lead to the same version for ever. A new version of a format is a new page beside the old one:
`…-v2.html`, `…-v2.schema.json`, ids that begin `DQ2-` or `BN2-`. What may change inside of a
published version, and what never does, is in [Versions and extensions](versioning.md).
"""


def page() -> str:
    """Return the page as Markdown."""
    rows = []
    for known in FORMATS:
        stated = [one for one in requirements().values() if one.document == known.document]
        prefix = stated[0].id.partition("-")[0]
        chapter = page_of_chapter(known.document).rpartition("/")[2]
        schema_text(known.id)  # raises where the schema is missing
        rows.append(
            (
                f"`{known.id}`",
                known.version,
                f"[{chapter.removesuffix('.md')}]({chapter})",
                f'<a href="../schemas/{known.schema_name}">{known.schema_name}</a>',
                f"`{prefix}-…`, {len(stated)} statements",
            )
        )
    return TEXT.format(table=table(("format", "version", "chapter", "schema", "ids"), rows))
