"""Copy the golden vectors into a folder, for a program to read."""

from pathlib import Path

from nibblespec.conformance.examples.files import Files
from nibblespec.conformance.examples.write import write_folder
from nibblespec.conformance.vectors.golden_set import (
    EXPECTED,
    INDEX,
    INPUTS,
    README,
    golden_file,
)


def export_vectors(folder: Path, *, inputs_only: bool = False) -> list[str]:
    """Write index, inputs, expected outputs and the description of the format; return the names.

    The folder must not exist yet, or be empty. With `inputs_only` the expected outputs stay away.
    Raises OSError where it cannot be written.
    """
    names = [README, INDEX, INPUTS, *([] if inputs_only else [EXPECTED])]
    files: Files = {name: golden_file(name) for name in names}
    write_folder(folder, files)
    return names
