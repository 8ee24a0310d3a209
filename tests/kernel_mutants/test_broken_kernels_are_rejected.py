"""Every broken kernel is rejected, by the check that its entry names, for the reason it names."""

from dataclasses import replace
from pathlib import Path

import pytest
from nibblespec.optimized import backend
from nibblespec.optimized.checked import checked
from nibblespec.optimized.kernels import INTERPRETED
from nibblespec.optimized.kernels.aot import specializations

from tests.kernel_mutants.mutant import (
    KernelMutant,
    broken_operations,
    broken_promises,
    fate_of_process,
)
from tests.kernel_mutants.mutants import CHECKS, MUTANTS
from tests.kernel_mutants.table import PAGE, render
from tests.teeth.judge import judged

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="broken kernels are not run on a device")


def chosen(by: str) -> pytest.MarkDecorator:
    these = [mutant for mutant in MUTANTS if mutant.by == by]
    return pytest.mark.parametrize("mutant", these, ids=[mutant.name for mutant in these])


@chosen("suite")
def test_the_suite_rejects(mutant: KernelMutant, tmp_path: Path) -> None:
    with broken_operations(mutant, tmp_path) as operations:
        broken = replace(backend, name=mutant.name, operations=checked(operations))
        results = judged(broken, [mutant.at])
    assert [one.result for one in results] == ["fail"]
    assert mutant.says in results[0].requirements


@chosen("check")
def test_a_check_rejects(mutant: KernelMutant, tmp_path: Path) -> None:
    with broken_operations(mutant, tmp_path) as operations, pytest.raises(AssertionError):
        CHECKS[mutant.at](operations)


@chosen("process")
def test_a_check_rejects_or_memory_protection_does(mutant: KernelMutant, tmp_path: Path) -> None:
    assert fate_of_process(mutant, tmp_path) in ("rejected", "crashed")


@chosen("ptx")
def test_the_ptx_rejects(mutant: KernelMutant, tmp_path: Path) -> None:
    assert mutant.at in {one.name for one in specializations()}
    broken = broken_promises(mutant, tmp_path)
    assert any(mutant.says in line for line in broken), broken


def test_there_are_as_many_as_are_asked_for_and_no_two_are_alike() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.at in CHECKS for mutant in MUTANTS if mutant.by in ("check", "process"))


def test_the_table_is_the_one_that_the_code_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == render()
