"""The versions of the specification: where each is, and what stays as it is."""

from nibblespec.schemas import schema_text
from nibblespec.spec.formats import FORMATS
from nibblespec.spec.requirements import requirements

from sitegen.sources import page_of_chapter
from sitegen.tables import table

TEXT = """# Versions of the formats

A version of a format has a chapter, a JSON Schema and ids of its own, and each carries the version
in its name. All versions stay in this site, at the same addresses.

{table}

- **An address stays.** A chapter's page, a schema's file and a statement's anchor (its id in lower
  case) lead to the same version for ever. A new version of a format is a new page beside the old
  one: `…-v2.html`, `…-v2.schema.json`, ids that begin `DQ2-` or `BN2-`.
- **An id means one statement.** The text of a published statement is corrected where it says less
  clearly what the checks already demand. A statement that demands something else gets a new id, and
  one that is given up leaves its id unused.
- **A version does not change under its files.** What is valid under version 1 stays valid under
  version 1, and computes the same bits.
- **The package has versions of its own.** They count the validator, the suite and the backends, and
  are listed in the [changelog](../changelog.md). The suite's reports, and everything that the
  validator writes for programs, name the package's version.
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
