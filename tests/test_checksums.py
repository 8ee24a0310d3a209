"""checksums.sha256: what sha256sum writes passes, and each way to get it wrong is told."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from nibblespec.conformance import validate
from nibblespec.conformance.artifacts.bitnest import checksums
from nibblespec.conformance.artifacts.bitnest.checksums import CHECKSUMS, stays_inside
from nibblespec.conformance.artifacts.findings import Finding
from nibblespec.conformance.examples.files import Files, checksums_of
from nibblespec.conformance.examples.models import BITNEST, DASHQ
from nibblespec.conformance.examples.write import example_files, write_files

from tests.contents import ids

ZEROS = "0" * 64


@pytest.fixture(scope="module")
def example() -> Files:
    files = example_files(BITNEST)
    del files[CHECKSUMS]
    return files


def lines_of(files: Files) -> dict[str, str]:
    """Return the digest of each file, by name."""
    text = checksums_of(files).decode()
    return {line[66:]: line[:64] for line in text.splitlines()}


def check(folder: Path, files: Files, listed: bytes | str) -> list[Finding]:
    """Write a package with this list and return what is found."""
    data = listed.encode() if isinstance(listed, str) else listed
    write_files(folder, {**files, CHECKSUMS: data})
    return validate(folder, "tensors")


def text(digests: Mapping[str, str], separator: str = "  ", end: str = "\n") -> str:
    return "".join(f"{digest}{separator}{name}{end}" for name, digest in digests.items())


# What passes


def test_a_package_without_a_list_has_no_finding(tmp_path: Path, example: Files) -> None:
    write_files(tmp_path, example)
    assert validate(tmp_path, "tensors") == []


@pytest.mark.parametrize("names", ["*", "./*"])
@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs sha256sum")
def test_what_sha256sum_writes_passes(tmp_path: Path, example: Files, names: str) -> None:
    write_files(tmp_path, example)
    command = f"sha256sum {names} > {CHECKSUMS}.new && mv {CHECKSUMS}.new {CHECKSUMS}"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    lines = (tmp_path / CHECKSUMS).read_text().splitlines(keepends=True)
    (tmp_path / CHECKSUMS).write_text("".join(line for line in lines if ".new" not in line))
    assert validate(tmp_path, "tensors") == []


def test_digits_may_be_in_upper_case(tmp_path: Path, example: Files) -> None:
    upper = {name: digest.upper() for name, digest in lines_of(example).items()}
    assert check(tmp_path, example, text(upper)) == []


def test_the_last_line_may_lack_its_end(tmp_path: Path, example: Files) -> None:
    assert check(tmp_path, example, text(lines_of(example)).rstrip("\n")) == []


def test_files_in_a_subfolder_are_verified(tmp_path: Path, example: Files) -> None:
    files: Files = {**example, "rotation/R.bin": b"\x80\x04N."}
    found = check(tmp_path, files, text(lines_of(files)))
    assert ids(found) == ["BN1-FILES-ROTATION"]


def test_names_may_have_spaces_and_any_letters(tmp_path: Path, example: Files) -> None:
    files: Files = {**example, "read me, größer.md": b"#"}
    assert check(tmp_path, files, text(lines_of(files))) == []


def test_hidden_files_need_no_line(tmp_path: Path, example: Files) -> None:
    files: Files = {**example, ".gitattributes": b"*.safetensors filter=lfs\n"}
    assert check(tmp_path, files, text(lines_of(example))) == []


def test_a_link_to_a_file_is_verified_as_that_file(tmp_path: Path, example: Files) -> None:
    digests = lines_of(example)
    write_files(tmp_path, {**example, CHECKSUMS: text(digests).encode()})
    (tmp_path / "config.json").rename(tmp_path / "config.old")
    (tmp_path / "config.json").symlink_to("config.old")
    assert ids(validate(tmp_path, "tensors")) == ["BN1-CHECKSUMS-UNLISTED"]


def test_the_list_is_verified_at_level_tensors_alone(tmp_path: Path, example: Files) -> None:
    write_files(tmp_path, {**example, CHECKSUMS: b"nonsense"})
    assert validate(tmp_path, "headers") == []


def test_the_other_format_knows_no_list(tmp_path: Path) -> None:
    write_files(tmp_path, {**example_files(DASHQ), CHECKSUMS: b"nonsense"})
    assert validate(tmp_path, "tensors") == []


# What does not


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("gone")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (make_pipe, "a pipe"),
        (Path.mkdir, "a folder"),
        (link_to_nothing, "a link that leads nowhere"),
        (link_to_itself, "a link that leads to itself"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="needs pipes and links")
def test_what_is_no_regular_file_is_told(
    tmp_path: Path, example: Files, make: Callable[[Path], None], found: str
) -> None:
    write_files(tmp_path, {**example, "README.md": b"#"})
    make(tmp_path / CHECKSUMS)
    (told,) = validate(tmp_path, "tensors")
    assert (told.requirement, told.file, told.found) == ("BN1-CHECKSUMS-LINES", CHECKSUMS, found)


SECRET = "secret"


@pytest.mark.parametrize(
    "line",
    [
        f"{SECRET}\n",
        f"{ZEROS}  /{SECRET}\n",
        f"{ZEROS}  {SECRET}\n",
        f"{ZEROS} *{SECRET}\n",
        f"{ZEROS}  {SECRET}\n" * 2,
        f"{'5ec7e7' * 10}5ec7  config.json\n",
    ],
)
def test_of_a_link_out_of_the_folder_nothing_is_quoted(
    tmp_path: Path, example: Files, line: str
) -> None:
    package = tmp_path / "package"
    write_files(package, example)
    (tmp_path / "elsewhere").write_text(text(lines_of(example)) + line)
    (package / CHECKSUMS).symlink_to(tmp_path / "elsewhere")
    found = validate(package, "tensors")
    assert found
    assert SECRET not in repr(found)
    assert "5ec7e7" not in repr(found)


def test_the_list_of_a_snapshot_in_the_cache_is_quoted(tmp_path: Path, example: Files) -> None:
    package, blobs = tmp_path / "snapshots" / "revision", tmp_path / "blobs"
    package.mkdir(parents=True)
    blobs.mkdir()
    write_files(package, example)
    (blobs / "list").write_text(text(lines_of(example)) + f"{ZEROS}  gone\n")
    (package / CHECKSUMS).symlink_to("../../blobs/list")
    (found,) = validate(package, "tensors")
    assert found.expected == 'the file "gone"'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# comment",
        "config.json",
        f"{ZEROS[1:]}  config.json",
        f"{ZEROS}0  config.json",
        f"{ZEROS[1:]}g  config.json",
        f"{ZEROS} config.json",
        f"{ZEROS}\tconfig.json",
        f"{ZEROS}  ",
        f"{ZEROS}",
        f"\\{ZEROS}  a\\nb",
        f"SHA256 (config.json) = {ZEROS}",
        " " * 100_000,
    ],
)
def test_a_malformed_line_is_told_with_its_number(
    tmp_path: Path, example: Files, line: str
) -> None:
    (found,) = check(tmp_path, example, f"{line}\n{text(lines_of(example))}")
    assert (found.requirement, found.line) == ("BN1-CHECKSUMS-LINES", 1)
    assert len(found.found) < 200


def test_lines_of_windows_are_told_with_what_to_do(tmp_path: Path, example: Files) -> None:
    found = check(tmp_path, example, text(lines_of(example), end="\r\n"))
    lines = [each for each in found if each.requirement == "BN1-CHECKSUMS-LINES"]
    assert len(lines) == len(example)
    assert "LF" in lines[0].hint
    assert set(ids(found)) == {"BN1-CHECKSUMS-LINES", "BN1-CHECKSUMS-COMPLETE"}


def test_the_marker_of_binary_mode_is_a_warning_and_the_file_is_verified(
    tmp_path: Path, example: Files
) -> None:
    digests = {**lines_of(example), "config.json": ZEROS}
    found = check(tmp_path, example, text(digests, separator=" *"))
    assert {(each.requirement, each.severity) for each in found} == {
        ("BN1-CHECKSUMS-MARKER", "warning"),
        ("BN1-CHECKSUMS-MATCH", "error"),
    }


@pytest.mark.parametrize("listed", [b"", b"\n"])
def test_an_empty_list_lacks_every_file(tmp_path: Path, example: Files, listed: bytes) -> None:
    found = [
        each
        for each in check(tmp_path, example, listed)
        if each.requirement == "BN1-CHECKSUMS-COMPLETE"
    ]
    assert len(found) == 4


@pytest.mark.parametrize("listed", [b"\xff" + b"\n", ZEROS.encode() + b"  \xe4.md\n"])
def test_a_list_in_another_encoding_is_told_once(
    tmp_path: Path, example: Files, listed: bytes
) -> None:
    found = check(tmp_path, example, text(lines_of(example)).encode() + listed)
    assert ids(found) == ["BN1-CHECKSUMS-LINES"]


def test_a_list_that_is_too_long_is_not_read(
    tmp_path: Path, example: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "MAX_BYTES", 100)
    assert ids(check(tmp_path, example, "x" * 101)) == ["BN1-CHECKSUMS-LINES"]
    assert len(check(tmp_path, example, "x\n" * 50)) == 50 + 4


OUTSIDE = [
    "../config.json",
    "/etc/passwd",
    "a/../../b",
    "rotation/../config.json",
    "..",
    ".",
    "a//b",
    "rotation/",
    "C:\\config.json",
    "a\\b",
    "a\x00b",
    "a\x1bb",
    "a\x7fb",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_leads_elsewhere_is_told_and_not_followed(
    tmp_path: Path, example: Files, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open

    def watched(path: str | os.PathLike[str], *rest: int) -> int:
        opened.append(os.fspath(path))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", watched)
    (found,) = check(tmp_path, example, text({**lines_of(example), name: ZEROS}))
    assert (found.requirement, found.line) == ("BN1-CHECKSUMS-NAMES", len(example) + 1)
    assert all(path.startswith(str(tmp_path)) and ".." not in path for path in opened)


@pytest.mark.parametrize("name", ["config.json", "rotation/R.bin", "a b", "a..b", "größer", "-"])
def test_ordinary_names_stay_inside(name: str) -> None:
    assert stays_inside(name)


def test_a_name_that_is_there_twice_is_told_at_the_second_line(
    tmp_path: Path, example: Files
) -> None:
    digests = lines_of(example)
    twice = text({"./config.json": digests["config.json"]})
    (found,) = check(tmp_path, example, text(digests) + twice)
    assert (found.requirement, found.line) == ("BN1-CHECKSUMS-UNIQUE", len(example) + 1)


def test_of_two_lines_for_a_file_the_wrong_one_is_told(tmp_path: Path, example: Files) -> None:
    found = check(tmp_path, example, text(lines_of(example)) + text({"config.json": ZEROS}))
    assert ids(found) == ["BN1-CHECKSUMS-UNIQUE", "BN1-CHECKSUMS-MATCH"]
    assert found[1].expected.endswith(ZEROS)


@pytest.mark.parametrize("name", ["tokenizer.json", "rotation", "x" * 300, "nothing/here"])
def test_what_is_no_file_is_told(tmp_path: Path, example: Files, name: str) -> None:
    files: Files = {**example, "rotation/R.bin": b"."}
    found = check(tmp_path, files, text({**lines_of(files), name: ZEROS}))
    assert ids(found) == ["BN1-FILES-ROTATION", "BN1-CHECKSUMS-FILES"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_not_opened(tmp_path: Path, example: Files) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = check(tmp_path, example, text({**lines_of(example), "pipe": ZEROS}))
    assert ids(found) == ["BN1-CHECKSUMS-FILES"]


@pytest.mark.parametrize("name", ["planes.safetensors", "meta.json"])
def test_a_changed_byte_is_told(tmp_path: Path, example: Files, name: str) -> None:
    digests = {**lines_of(example), name: hashlib.sha256(b"").hexdigest()}
    (found,) = check(tmp_path, example, text(digests))
    assert (found.requirement, found.file) == ("BN1-CHECKSUMS-MATCH", name)
    assert found.found == lines_of(example)[name]


def test_an_empty_file_has_the_digest_of_nothing(tmp_path: Path, example: Files) -> None:
    files: Files = {**example, "README.md": b""}
    assert check(tmp_path, files, text(lines_of(files))) == []


@pytest.mark.parametrize(
    "name", ["meta.json", "planes.safetensors", "aux.safetensors", "config.json"]
)
def test_each_file_of_a_package_needs_a_line(tmp_path: Path, example: Files, name: str) -> None:
    digests = lines_of(example)
    del digests[name]
    (found,) = check(tmp_path, example, text(digests))
    assert (found.requirement, found.expected) == (
        "BN1-CHECKSUMS-COMPLETE",
        f"a line for {name}",
    )


def test_other_files_without_a_line_are_an_information(tmp_path: Path, example: Files) -> None:
    files: Files = {**example, "tokenizer.json": b"{}"}
    (found,) = check(tmp_path, files, text(lines_of(example)))
    assert (found.requirement, found.severity, found.file) == (
        "BN1-CHECKSUMS-UNLISTED",
        "info",
        "tokenizer.json",
    )


def test_a_hundred_thousand_lines_end_in_a_bounded_list(tmp_path: Path, example: Files) -> None:
    found = check(tmp_path, example, text(lines_of(example)) + f"{ZEROS}  ../x\n" * 100_000)
    assert len(found) <= 20_010
    assert found[-1].unlisted > 0
