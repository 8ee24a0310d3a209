"""The page that checks a manifest in the browser."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from nibblespec.conformance.artifacts.structure import KINDS

from tests.test_corpus import CASES, expectation_of, manifest_of
from tests.website.blocks import ROOT
from tests.website.browser import Browser
from tests.website.server import Server
from tests.website.test_browser import watched  # noqa: F401  # the fixture `browser`

VERDICT = "document.getElementById('check-verdict')"
DONE = f"!document.querySelector('#check[aria-busy]') && {VERDICT}.dataset.state !== 'busy'"
MODULE = {
    "nbits": 4,
    "group_size": 32,
    "in_features": 4096,
    "out_features": 12288,
    "quant_in_features": 4096,
    "num_groups": 1572864,
    "packing": "int4_packed_u32",
    "scale_zero_dtype": "float16",
    "linear_dtype": "bfloat16",
    "runtime_backend": "torch",
    "note": "x" * 220,
}


def opened(browser: Browser, server: Server) -> None:
    browser.open(server.url + "check.html")


def verdict(browser: Browser) -> str:
    """Wait for the page to be done, and return what it says."""
    browser.wait(f"{DONE} && {VERDICT}.textContent !== ''")
    said = browser.run(f"{VERDICT}.textContent")
    assert isinstance(said, str)
    return said


def listed(browser: Browser) -> list[str]:
    """Return the headings of what was found."""
    found = browser.run(
        "[...document.querySelectorAll('#check-findings h3')].map(one => one.textContent)"
    )
    assert isinstance(found, list)
    return found


def large(modules: int, change: dict[str, Any]) -> bytes:
    """Return a manifest with many modules, the last of which is changed."""
    names = [
        f"model.layers.{number // 7}.mlp.experts.{number}.up_proj" for number in range(modules)
    ]
    entries = dict.fromkeys(names, MODULE) | {names[-1]: {**MODULE, **change}}
    manifest = {"format": "dashq-packed-linear", "format_version": 1, "quantized_modules": entries}
    return json.dumps(manifest, indent=1).encode()


@pytest.mark.parametrize("name", ["dashq_config.json", "meta.json"])
def test_a_published_manifest_is_valid(browser: Browser, server: Server, name: str) -> None:
    opened(browser, server)
    browser.choose("#check-file", ROOT / "examples" / name)
    assert verdict(browser).startswith(f"{name}: the structure is that of ")
    assert "need the command line" in verdict(browser)
    assert listed(browser) == []


def test_a_broken_manifest_is_told_with_statements_and_places(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    value = json.loads((ROOT / "examples" / "meta.json").read_bytes())
    value["layers"]["model.layers.0.mlp.up_proj"]["groups"] = "24"
    del value["pack"]
    (tmp_path / "meta.json").write_text(json.dumps(value))
    opened(browser, server)
    browser.choose("#check-file", tmp_path / "meta.json")
    assert verdict(browser) == "meta.json: 2 faults in a manifest of bitnest-package-v1."
    assert set(listed(browser)) == {
        "BN1-FIELD-REQUIRED in one place",
        "BN1-FIELD-TYPE in one place",
    }
    cells = browser.run("document.querySelector('#check-findings').textContent")
    assert "/layers/model.layers.0.mlp.up_proj/groups" in cells
    assert 'an integer"24"' in cells
    browser.click("#check-findings a[href$='bn1-field-type']")
    assert browser.run("document.querySelector(location.hash) !== null")


def test_a_dropped_file_is_checked(browser: Browser, server: Server) -> None:
    opened(browser, server)
    browser.run(
        "(() => { const data = new DataTransfer();"
        "data.items.add(new File(['{\"format\": 3}'], 'dropped.json'));"
        "document.getElementById('check-zone').dispatchEvent("
        "new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })); })()"
    )
    assert verdict(browser) == "dropped.json: 1 fault."
    assert listed(browser) == ["JSON-MANIFEST-FORMAT in one place"]


def test_text_of_a_manifest_stays_text(browser: Browser, server: Server) -> None:
    opened(browser, server)
    hostile = json.dumps({"format": "<img src=x onerror=alert(1)>"})
    browser.run(f"document.getElementById('check-text').value = {json.dumps(hostile)}")
    browser.run("document.querySelector('#check button[type=submit]').click()")
    verdict(browser)
    assert browser.run("document.querySelectorAll('#check-findings img').length") == 0
    assert "<img" in browser.run("document.querySelector('#check-findings').textContent")


def test_keyboard_alone_is_enough(browser: Browser, server: Server) -> None:
    opened(browser, server)
    browser.run("document.getElementById('check-file').focus()")
    reached = []
    for _ in range(4):
        browser.press("Tab", 9)
        reached.append(
            browser.run("document.activeElement.id || document.activeElement.textContent")
        )
    assert reached == ["check-text", "Check the text", "A valid sample", "A broken sample"]
    browser.press("Enter", 13, "\r")
    assert verdict(browser).startswith("a broken sample: 3 faults")
    assert len(listed(browser)) == 3


def test_screen_readers_get_labels_and_a_live_verdict(browser: Browser, server: Server) -> None:
    opened(browser, server)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    }
    roles = {role for role, _ in named}
    assert "status" in roles
    assert any("choose the file" in name.lower() for _, name in named)
    assert ("textbox", "Or paste it") in named
    assert ("region", "What was found") in named


def test_a_large_manifest_is_checked_while_the_page_responds(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    data = large(20_000, {"nbits": 9})
    assert 9e6 < len(data) < 12e6
    (tmp_path / "large.json").write_bytes(data)
    opened(browser, server)
    browser.run(
        "window.longest = 0; window.last = performance.now(); window.ticks = setInterval(() => {"
        "const now = performance.now(); longest = Math.max(longest, now - last); last = now; }, 20)"
    )
    browser.choose("#check-file", tmp_path / "large.json")
    assert verdict(browser).startswith("large.json: 1 fault ")
    assert listed(browser) == ["DQ1-FIELD-VALUE in one place"]
    longest = browser.run("clearInterval(ticks), longest")
    print(f"longest pause of the page: {longest:.0f} ms")
    assert longest < 1000


def test_every_module_may_be_broken(browser: Browser, server: Server, tmp_path: Path) -> None:
    entries: dict[str, object] = {f"m.{number}": {} for number in range(20_000)}
    manifest = {"format": "dashq-packed-linear", "format_version": 1, "quantized_modules": entries}
    (tmp_path / "all.json").write_text(json.dumps(manifest))
    opened(browser, server)
    browser.choose("#check-file", tmp_path / "all.json")
    assert verdict(browser).startswith("all.json: at least 10,000 faults ")
    assert listed(browser) == ["DQ1-FIELD-REQUIRED in 10,000 places"]


@pytest.mark.parametrize(
    ("modules", "found"),
    [
        (
            '{"__proto__": 3, "toString": 4}',
            {"/quantized_modules/__proto__", "/quantized_modules/toString"},
        ),
        ('{"a/b~c%20 ü#?": 3}', {"/quantized_modules/a~1b~0c%20 ü#?"}),
        ("[" * 50_000 + "]" * 50_000, {"/quantized_modules"}),
        ('{"\\ud800": 3}', {""}),
    ],
    ids=["names of JavaScript", "escapes", "depth", "surrogates"],
)
def test_hostile_names_and_depths_end_in_findings(
    browser: Browser, server: Server, modules: str, found: set[str]
) -> None:
    opened(browser, server)
    head = '{"format": "dashq-packed-linear", "format_version": 1, "quantized_modules": '
    result = browser.run(
        "(async () => { const { check } = await import(new URL('assets/check/check.js', location));"
        f"return check(new TextEncoder().encode({json.dumps(head + modules + '}')})); }})()"
    )
    assert {one["pointer"] for one in result["findings"]} == found


def test_once_loaded_the_page_needs_no_network(browser: Browser, server: Server) -> None:
    opened(browser, server)
    browser.run("document.querySelector('button[data-sample=good]').click()")
    verdict(browser)
    asked = len(server.requests)
    browser.call(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    try:
        browser.run("document.querySelector('button[data-sample=bad]').click()")
        browser.wait(f"{VERDICT}.textContent.includes('3 faults')")
    finally:
        browser.call(
            "Network.emulateNetworkConditions",
            offline=False,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )
    assert len(server.requests) == asked


def test_the_corpus_has_the_verdicts_of_the_json_schema(browser: Browser, server: Server) -> None:
    """Verdicts and places are those of the command line, where a JSON Schema decides them."""
    opened(browser, server)
    names = [name for name in CASES if expectation_of(name)["schema_valid"] is not None]
    documents = [base64.b64encode(manifest_of(name)).decode() for name in names]
    script = (
        "(async () => { const { check } = await import(new URL('assets/check/check.js', location));"
        f"return {json.dumps(documents)}.map((text) => check(Uint8Array.from(atob(text),"
        " (one) => one.charCodeAt(0)))); })()"
    )
    results = browser.run(script)
    structural = {
        id_
        for ids in KINDS.values()
        for id_ in ids
        if not id_.endswith(("FIELD-UNKNOWN", "NAME-LENGTH"))
    }
    for name, result in zip(names, results, strict=True):
        expected = expectation_of(name)
        assert (result["findings"] == []) == expected["schema_valid"], name
        found = {(one["requirement"], one["pointer"]) for one in result["findings"]}
        told = expected["findings"]
        assert isinstance(told, list)
        wanted = {
            (one["requirement"], one["pointer"])
            for one in told
            if one["requirement"] in structural | {"JSON-MANIFEST-FORMAT"}
        }
        assert found == wanted, name
