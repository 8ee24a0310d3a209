"""Checkpoints on the Hub: what is fetched, what is found, and how a run ends without an answer."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import jsonschema
import pytest
from huggingface_hub import constants
from nibblespec.conformance import Finding, InputError, validate
from nibblespec.conformance.artifacts.reading import hub as reader
from nibblespec.conformance.cli import app
from nibblespec.conformance.examples.files import INDEX, json_bytes, with_header
from nibblespec.conformance.examples.models import BITNEST, DASHQ, SHARDS
from nibblespec.conformance.examples.write import FAULTS, example_files, write_files
from nibblespec.spec.requirements import requirements
from typer.testing import CliRunner

from tests.hub_server import COMMIT, REPOSITORY, SIGNATURE, Asked, Handler, Hub, serving

ADDRESS = f"hf://{REPOSITORY}"
TOKEN = "hf_thisIsNoToken"
COMMAND = [sys.executable, "-c", "from nibblespec.conformance.cli import main; main()"]

Misbehave = Callable[[Handler, Asked], bool]


def example(family: str = DASHQ, fault: str | None = None) -> dict[str, bytes]:
    """Return the files of an example, all of which a repository can hold."""
    files = example_files(family, fault)
    held = {name: data for name, data in files.items() if isinstance(data, bytes)}
    assert held.keys() == files.keys()
    return held


VALID = example()


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """Let huggingface_hub talk to this machine without a proxy; to make a session takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        huggingface_hub.close_session()
        yield
        huggingface_hub.close_session()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Run a Hub that holds the dashq example, and make huggingface_hub talk to it."""
    with serving(VALID) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(reader, "PAUSES", (0.0, 0.0))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def complaint(address: str = ADDRESS, **changes: Any) -> str:  # noqa: ANN401 (as in validate)
    """Return why an address could not be validated, which is one line."""
    with pytest.raises(InputError) as caught:
        validate(address, **changes)
    message = str(caught.value)
    assert message.startswith(address.partition("@")[0])
    assert "\n" not in message
    return message


# What is found


REMOTE = [
    (family, name)
    for family, known in FAULTS.items()
    for name, fault in known.items()
    if name not in ("folder-for-file", "lost-link")  # a repository has no links
    and any(requirements()[broken].checked_by == "headers" for broken in fault.requirements)
]
"""The faults that headers show."""


@pytest.mark.parametrize(("family", "fault"), REMOTE)
def test_a_repository_has_the_findings_of_its_folder(
    hub: Hub, tmp_path: Path, family: str, fault: str
) -> None:
    hub.files = example(family, fault)
    write_files(tmp_path, dict(hub.files))
    assert validate(ADDRESS) == validate(tmp_path)


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_a_valid_checkpoint_has_no_findings(hub: Hub, family: str) -> None:
    hub.files = example(family)
    assert validate(ADDRESS) == []


def test_a_pickle_in_a_subfolder_is_reported_and_not_fetched(hub: Hub) -> None:
    hub.files["old/pytorch_model.bin"] = b"pickle"
    [found] = validate(ADDRESS)
    assert (found.requirement, found.file) == ("ST-FILE-PICKLE", "old/pytorch_model.bin")
    assert "old/pytorch_model.bin" not in hub.ranges()


def test_a_folder_in_place_of_a_document_is_a_finding(hub: Hub) -> None:
    hub.files["config.json/README.md"] = hub.files.pop("config.json")
    [found] = validate(ADDRESS)
    assert (found.requirement, found.found) == ("DQ1-CONFIG-PRESENT", "a folder")


def test_an_empty_file_is_a_finding_and_not_fetched(hub: Hub) -> None:
    hub.files[SHARDS[1]] = b""
    assert "ST-FILE-PREFIX" in {found.requirement for found in validate(ADDRESS)}
    assert SHARDS[1] not in hub.ranges()


# What is fetched


def header_end(file: bytes) -> int:
    return 8 + int.from_bytes(file[:8], "little")


@pytest.mark.parametrize("family", [DASHQ, BITNEST])
def test_no_byte_behind_a_header_is_asked_for(hub: Hub, family: str) -> None:
    hub.files = example(family)
    validate(ADDRESS)
    for name, ranges in hub.ranges().items():
        data = hub.files[name]
        if name.endswith(".safetensors"):
            assert ranges == [(0, 7), (8, header_end(data) - 1)]
        else:
            assert ranges == [(0, len(data) - 1)]


def test_files_that_no_rule_reads_are_left_alone(hub: Hub) -> None:
    hub.files |= {"README.md": b"# A model", "tokenizer.json": b"{}", "tokenizer.model": b"?"}
    validate(ADDRESS)
    assert set(hub.ranges()) == {"dashq_config.json", "config.json", INDEX, *SHARDS}


def test_the_level_manifest_fetches_the_manifest_alone(hub: Hub) -> None:
    validate(ADDRESS, level="manifest")
    assert set(hub.ranges()) == {"dashq_config.json"}


def padded(file: bytes, end: int) -> bytes:
    """Return a safetensors file whose header ends at byte `end`."""
    length = int.from_bytes(file[:8], "little")
    header = file[8 : 8 + length].ljust(end - 8)
    return len(header).to_bytes(8, "little") + header + file[8 + length :]


@pytest.mark.parametrize("end", [*range(99_990, 100_012), 131_072, 1_000_000])
def test_a_header_of_any_length_is_read_to_its_end(hub: Hub, end: int) -> None:
    hub.files[SHARDS[0]] = padded(hub.files[SHARDS[0]], end)
    assert {found.requirement for found in validate(ADDRESS)} <= {"ST-TENSOR-ALIGNMENT"}
    assert hub.ranges()[SHARDS[0]] == [(0, 7), (8, end - 1)]


def test_a_large_header_is_read_when_it_is_its_turn(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MOST_AHEAD", 2000)
    assert validate(ADDRESS) == []
    assert hub.ranges()[SHARDS[0]] == [(0, 7), (8, header_end(hub.files[SHARDS[0]]) - 1)]


def test_an_absurd_length_is_a_finding_and_nothing_more_is_fetched(hub: Hub) -> None:
    hub.files[SHARDS[0]] = b"\xff" * 8 + hub.files[SHARDS[0]][8:]
    assert "ST-HEADER-LIMIT" in {found.requirement for found in validate(ADDRESS)}
    assert hub.ranges()[SHARDS[0]] == [(0, 7)]


def test_a_server_that_ignores_ranges_is_cut_off(hub: Hub) -> None:
    def ignore(handler: Handler, asked: Asked) -> bool:
        large = asked.server == "other"
        if large:
            handler.send_file(asked, whole=True)
        return large

    hub.misbehave = ignore
    shard = hub.files[SHARDS[1]]
    hub.files[SHARDS[1]] = shard + bytes(2**26)
    assert {found.requirement for found in validate(ADDRESS)} == {"ST-DATA-END"}
    assert hub.sent < 2**25  # what the buffers of two connections take, and not two shards


def test_two_hundred_shards_are_read_side_by_side_by_a_few(hub: Hub) -> None:
    tensors = {
        f"model-{number:05}-of-00200.safetensors": f"tensor.{number}" for number in range(1, 201)
    }
    shards = {
        file: with_header({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"x")
        for file, name in tensors.items()
    }
    index = {"weight_map": {name: file for file, name in tensors.items()}}
    manifest = {"format": DASHQ, "format_version": 1, "quantized_modules": {}}
    gate = threading.Barrier(2)

    def meet(_: Handler, asked: Asked) -> bool:
        if asked.file in list(shards)[:2] and asked.server == "hub" and asked.span == (0, 7):
            gate.wait(20)  # the second one has to come while the first one waits
        return False

    hub.misbehave = meet
    hub.files = {
        **shards,
        INDEX: json_bytes(index),
        "config.json": json_bytes({"model_type": "qwen2"}),
        "dashq_config.json": json_bytes(manifest),
    }
    assert {found.requirement for found in validate(ADDRESS)} <= {"DQ1-MODULES-PRESENT"}
    assert all(len(hub.ranges()[file]) == 2 for file in shards)
    assert hub.busiest <= reader.WORKERS
    assert hub.connections < 100  # of some 800 requests


# Revisions


@pytest.mark.parametrize("revision", ["v1.0", "refs/pr/1", "a-branch", COMMIT])
@pytest.mark.parametrize("end", ["", "/"])
def test_a_revision_is_asked_for_by_its_name(hub: Hub, revision: str, end: str) -> None:
    hub.revisions = {revision: COMMIT, COMMIT: COMMIT}
    assert validate(f"{ADDRESS}@{revision}{end}") == []
    assert hub.asked[0].revision == revision


def test_all_files_are_of_the_commit_that_the_branch_was_in_the_beginning(hub: Hub) -> None:
    validate(ADDRESS)
    assert hub.asked[0].revision == "main"
    assert {asked.revision for asked in hub.asked[1:]} == {COMMIT}


def test_a_missing_revision_is_one_line(hub: Hub) -> None:
    assert hub.files
    assert complaint(f"{ADDRESS}@v9") == f"{ADDRESS}: the repository has no revision v9"


# Refusals


def always(answer: Callable[[Handler], bool], file: str | None = None) -> Misbehave:
    """Misbehave at every request, or at those for one file."""
    return lambda handler, asked: file in (None, asked.file) and answer(handler)


def test_a_missing_or_private_repository_is_one_line(hub: Hub) -> None:
    assert hub.files
    message = complaint("hf://owner/other")
    assert "no such repository, or a private one" in message
    assert "HF_TOKEN" in message


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (403, {"X-Error-Code": "GatedRepo"}, "the repository is gated: ask for access on its page"),
        (401, {"X-Error-Code": "GatedRepo"}, "the repository is gated: ask for access on its page"),
        (401, {}, "no such repository, or a private one"),
        (404, {"X-Error-Code": "RepoNotFound"}, "no such repository, or a private one"),
        (
            401,
            {"X-Error-Message": "Invalid credentials in Authorization header"},
            "the token is refused",
        ),
        (403, {}, "access is forbidden"),
        (429, {"Retry-After": "37"}, "too many requests: try again in 37 seconds"),
        (429, {"RateLimit": '"api";r=0;t=55'}, "too many requests: try again in 55 seconds"),
        (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, "try again later"),
        (429, {}, "too many requests: try again later"),
        (500, {}, "the server failed (status 500): try again later"),
        (418, {}, "the server answered with status 418"),
    ],
)
@pytest.mark.parametrize("file", ["", "dashq_config.json", SHARDS[1]])
def test_a_refusal_is_one_line_that_says_what_to_do(
    hub: Hub, file: str, status: int, headers: Mapping[str, str], expected: str
) -> None:
    hub.misbehave = always(lambda handler: handler.refuse(status, headers), file)
    message = complaint()
    assert expected in message
    assert file in message


def test_a_file_that_is_listed_and_not_there_is_one_line(hub: Hub) -> None:
    code = {"X-Error-Code": "EntryNotFound"}
    hub.misbehave = always(lambda handler: handler.refuse(404, code), INDEX)
    assert complaint() == f"{ADDRESS}: {INDEX}: the file is listed, and not there"


def test_the_command_line_says_it_in_one_line_and_ends_with_2(hub: Hub) -> None:
    hub.misbehave = always(lambda handler: handler.refuse(429, {"Retry-After": "37"}))
    result = CliRunner().invoke(app, ["validate", ADDRESS])
    assert result.exit_code == 2
    assert result.stderr == (f"nibblespec: {ADDRESS}: too many requests: try again in 37 seconds\n")


# Faults that pass, and those that do not


@pytest.mark.parametrize("file", ["", "config.json", SHARDS[1]])
def test_what_fails_twice_is_tried_a_third_time(hub: Hub, file: str) -> None:
    left = [503, 502]

    def fail(handler: Handler, asked: Asked) -> bool:
        return bool(asked.file == file and left and handler.refuse(left.pop()))

    hub.misbehave = fail
    assert validate(ADDRESS) == []
    assert not left


def test_a_refusal_for_good_is_not_tried_again(hub: Hub) -> None:
    hub.misbehave = always(lambda handler: handler.refuse(403))
    complaint()
    assert len(hub.asked) == 1


@pytest.mark.parametrize("file", ["", SHARDS[1]])
def test_a_server_that_is_silent_is_one_line(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    done = threading.Event()
    hub.misbehave = always(lambda _: done.wait(20), file)
    assert "no answer within 0.1 seconds" in complaint()
    done.set()


def test_a_server_that_is_not_there_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    assert hub.url != url
    monkeypatch.setattr(constants, "ENDPOINT", url)
    assert "cannot connect: " in complaint()


def test_an_answer_that_breaks_off_is_one_line(hub: Hub) -> None:
    part = {"Content-Length": "8", "Content-Range": "bytes 0-7/*"}

    def cut(handler: Handler) -> bool:
        handler.close_connection = True
        return handler.send_bytes(bytes(3), 206, part)

    hub.misbehave = always(cut, SHARDS[1])
    assert complaint() == f"{ADDRESS}: {SHARDS[1]}: the connection broke"


def test_an_answer_that_is_too_short_is_one_line(hub: Hub) -> None:
    size = len(hub.files["config.json"])
    part = {"Content-Range": f"bytes 0-{size - 1}/{size}"}
    hub.misbehave = always(lambda handler: handler.send_bytes(b"{", 206, part), "config.json")
    assert f"the answer broke off: expected {size} bytes, found 1 byte" in complaint()


def test_a_file_of_another_size_than_was_listed_is_one_line(hub: Hub) -> None:
    part = {"Content-Range": "bytes 0-7/9"}
    hub.misbehave = always(lambda handler: handler.send_bytes(bytes(8), 206, part), SHARDS[0])
    size = f"{len(hub.files[SHARDS[0]]):,}"
    assert f"the file has 9 bytes, and {size} bytes in the list of files" in complaint()


def test_a_whole_file_of_another_size_than_was_listed_is_one_line(hub: Hub) -> None:
    hub.misbehave = always(lambda handler: handler.send_bytes(bytes(9), 200), "config.json")
    assert "config.json: the file has 9 bytes, and " in complaint()


@pytest.mark.parametrize("part", [{}, {"Content-Range": "bytes 1-8/9"}, {"Content-Range": "9"}])
def test_another_part_than_was_asked_for_is_one_line(hub: Hub, part: dict[str, str]) -> None:
    hub.misbehave = always(lambda handler: handler.send_bytes(bytes(8), 206, part), SHARDS[0])
    assert "another part of the file than it was asked for" in complaint()


@pytest.mark.parametrize(
    "page",
    [
        b"<html>",
        b"[]",
        b"{}",
        b"null",
        b'{"id": 1, "siblings": 3}',
        b'{"id": "a", "siblings": [{}]}',
    ],
)
def test_an_answer_that_is_not_that_of_a_hub_is_one_line(hub: Hub, page: bytes) -> None:
    hub.misbehave = always(lambda handler: handler.send_bytes(page, 200))
    assert complaint()


@pytest.mark.parametrize("size", [None, -1, True, "4", 1.5])
def test_a_list_without_sizes_is_one_line(hub: Hub, size: object) -> None:
    listing = {"id": REPOSITORY, "siblings": [{"rfilename": "config.json", "size": size}]}
    hub.misbehave = always(lambda handler: handler.send_json(listing))
    assert "the server does not say how large the files are" in complaint()


def test_offline_mode_is_one_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in complaint()
    assert hub.asked == []


# What is not asked at all


@pytest.mark.parametrize(
    "address",
    ["hf://", "hf://owner", "hf://owner/name/file.json", "hf://owner/name@", "hf://a b/c"],
)
def test_an_address_of_another_form_is_refused(hub: Hub, address: str) -> None:
    assert "expected hf://owner/name or hf://owner/name@revision" in complaint(address)
    assert hub.asked == []


def test_a_name_that_no_repository_has_is_refused(hub: Hub) -> None:
    assert "no repository can have this name" in complaint("hf://owner/a..b")
    assert hub.asked == []


def test_the_level_tensors_is_refused(hub: Hub) -> None:
    assert "download the repository, and validate its folder" in complaint(level="tensors")
    assert hub.asked == []


def test_a_repository_without_a_manifest_is_refused(hub: Hub) -> None:
    del hub.files["dashq_config.json"]
    assert "no manifest in it: expected dashq_config.json or meta.json" in complaint()


def test_a_repository_with_two_manifests_is_refused(hub: Hub) -> None:
    hub.files["meta.json"] = b"{}"
    assert "expected one manifest, found dashq_config.json and meta.json" in complaint()


def test_a_folder_that_has_the_manifests_name_is_refused(hub: Hub) -> None:
    hub.files["dashq_config.json/README.md"] = hub.files.pop("dashq_config.json")
    assert "dashq_config.json is a folder; expected a manifest" in complaint()


def test_without_huggingface_hub_the_command_to_install_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'nibblespec[hub]'" in complaint()


def test_a_huggingface_hub_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "__version__", "0.36.2")
    assert "huggingface_hub 0.36.2 is too old: pip install 'nibblespec[hub]'" in complaint()


def test_a_repository_is_inspected_by_its_headers(hub: Hub) -> None:
    result = CliRunner().invoke(app, ["inspect", ADDRESS])
    assert result.exit_code == 0
    assert "Not quantized: 1 of 15 linear layers" in result.stdout
    assert hub.ranges()[SHARDS[0]] == [(0, 7), (8, header_end(hub.files[SHARDS[0]]) - 1)]


# Tokens and endpoints, in a process of its own


def process(hub: Hub, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=variables(hub, **environment),
    )


def variables(hub: Hub, **environment: str) -> dict[str, str]:
    fixed = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }
    return {**os.environ, **fixed, **environment}


def test_endpoint_and_token_are_those_of_the_environment(hub: Hub) -> None:
    result = process(hub, "validate", ADDRESS, HF_TOKEN=TOKEN)
    assert (result.returncode, result.stderr) == (0, "")
    assert "valid checkpoint (headers checked) of dashq-packed-linear v1" in result.stdout
    authorized = {asked.authorization for asked in hub.asked if asked.server == "hub"}
    assert authorized == {f"Bearer {TOKEN}"}


def test_the_token_does_not_go_where_the_hub_redirects_to(hub: Hub) -> None:
    process(hub, "validate", ADDRESS, HF_TOKEN=TOKEN)
    elsewhere = [asked.authorization for asked in hub.asked if asked.server == "other"]
    assert len(elsewhere) >= 4  # more where a slow answer made it ask again
    assert set(elsewhere) == {None}


@pytest.mark.parametrize("server", ["hub", "other"])
def test_neither_token_nor_signature_is_printed(hub: Hub, server: str) -> None:
    hub.misbehave = lambda handler, asked: asked.server == server and handler.refuse(403)
    result = process(hub, "validate", ADDRESS, HF_TOKEN=TOKEN)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert TOKEN not in result.stdout + result.stderr
    assert SIGNATURE not in result.stdout + result.stderr


def test_a_token_that_cannot_be_sent_is_not_printed(hub: Hub) -> None:
    result = process(hub, "validate", ADDRESS, HF_TOKEN="hf_é")
    assert result.returncode == 2
    assert (
        result.stderr
        == f"nibblespec: {ADDRESS}: the request cannot be sent: is HF_TOKEN a token?\n"
    )


@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_every_form_of_output_is_written(hub: Hub, form: str) -> None:
    hub.files = example(DASHQ, "weight-too")
    result = process(hub, "validate", ADDRESS, "--format", form)
    assert result.returncode == 1
    assert "DQ1-TENSOR-NO-WEIGHT" in result.stdout


def test_sarif_names_the_files_at_the_commit(hub: Hub) -> None:
    hub.files = example(DASHQ, "weight-too")
    result = CliRunner().invoke(app, ["validate", ADDRESS, "--format", "sarif"])
    document = json.loads(result.stdout)
    schema = Path(__file__).parent / "data" / "sarif-2.1.0.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text()))
    place = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].startswith(f"{ADDRESS}@{COMMIT}/model-0000")


# Interrupts


@pytest.mark.parametrize(
    ("sent", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)]
)
@pytest.mark.parametrize("file", ["", SHARDS[0]])
def test_a_signal_ends_a_run_that_waits_for_the_network(
    hub: Hub, file: str, sent: signal.Signals, status: int
) -> None:
    begun, done = threading.Event(), threading.Event()

    def wait(_: Handler) -> bool:
        begun.set()
        return done.wait(60)

    hub.misbehave = always(wait, file)
    environment = variables(hub, HF_HUB_DOWNLOAD_TIMEOUT="600")
    with subprocess.Popen(
        [*COMMAND, "validate", ADDRESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as child:
        try:
            assert begun.wait(60)
            child.send_signal(sent)
            output, errors = child.communicate(timeout=30)
        finally:
            child.kill()
            done.set()
    assert (child.returncode, output, errors) == (status, b"", b"")


def test_findings_are_those_of_python_too(hub: Hub) -> None:
    hub.files = example(DASHQ, "weight-too")
    [found] = validate(ADDRESS)
    assert isinstance(found, Finding)
