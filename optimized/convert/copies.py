"""Files of the source that a checkpoint takes over: the tokenizer's, and the licence."""

from fnmatch import fnmatchcase
from pathlib import Path

PATTERNS = (
    "tokenizer*",
    "vocab*",
    "merges*",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "chat_template*",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "LICENSE*",
    "NOTICE*",
)
"""Not the model card: it speaks of another model. Nothing else, since nobody knows what it is.

Nor names that are no text: a list of checksums, a line for each file, could not hold them."""

MOST_BYTES = 1 << 28


def copied_documents(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files to copy, by name."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if any(fnmatchcase(path.name, pattern) for pattern in PATTERNS)
        and path.name.isprintable()
        and path.is_file()
        and path.stat().st_size <= MOST_BYTES
    }
