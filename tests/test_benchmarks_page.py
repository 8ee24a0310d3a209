"""The page of figures: its tables are those of a run."""

import json
from pathlib import Path
from typing import Any

import pytest
from nibblespec.optimized.benchmarks import page

DOCS = Path(__file__).parent.parent / "docs"
PAGE = "Before.\n<!-- figures -->\nold\n<!-- end of figures -->\nAfter.\n"


def figures() -> dict[str, Any]:
    """Return a run of two cases."""
    machine = {
        "name": "a CPU",
        "device": "cpu",
        "threads": 2,
        "torch": "2.13.0",
        "date": "2026-11-30T21:00:00+00:00",
        "load": 0.04,
        "fill": 3e10,
        "copy": 2e10,
        "matmul": 4e11,
    }
    line = {
        "operation": "dashq linear",
        "shape": "8×64 INT4/g32",
        "rows": 1,
        "contestant": "ours",
        "seconds": 2e-3,
        "of_copy": 0.5,
        "of_fill": None,
        "times_ours": 1.0,
    }
    peer = {**line, "contestant": "bf16 F.linear", "times_ours": 1.5}
    weight = {**line, "operation": "dashq reconstruct", "rows": None, "of_fill": 0.25}
    return {"machine": machine, "lines": [weight, line, peer, {**line, "rows": 512}]}


def test_a_case_is_a_row_and_a_peer_a_column() -> None:
    written = page.with_figures(PAGE, figures())
    assert written.startswith("Before.\n<!-- figures -->\n\na CPU, 2 threads; cpu; PyTorch 2.13.0;")
    assert written.endswith("|\n\n<!-- end of figures -->\nAfter.\n")
    assert (
        "### Reconstructed weights\n\n| operation | shape | M | ours, ms | of the rate |" in written
    )
    assert "\n| dashq reconstruct | 8×64 INT4/g32 |  | 2 | 25 % |" in written
    assert "\n| dashq linear | 8×64 INT4/g32 | 1 | 2 | 50 % | 1.50 × |\n" in written
    assert "\n| dashq linear | 8×64 INT4/g32 | 512 | 2 | 50 % |  |\n" in written
    assert page.with_figures(written, figures()) == written


def test_a_page_without_a_place_for_figures_is_an_error() -> None:
    with pytest.raises(ValueError, match="the page has no lines '<!-- figures -->'"):
        page.with_figures("text", figures())


def test_the_program_writes_the_page(tmp_path: Path) -> None:
    run, target = tmp_path / "run.json", tmp_path / "page.md"
    run.write_text(json.dumps(figures()), encoding="utf-8")
    target.write_text(PAGE, encoding="utf-8")
    assert page.main([str(run), str(target)]) == 0
    assert target.read_text(encoding="utf-8") == page.with_figures(PAGE, figures())


def test_the_committed_page_has_the_committed_figures() -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    found = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    assert page.with_figures(text, found) == text
