"""The pytest plugin: backends by name, results, expected failures, seeds, other tests."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nibblespec.conformance import plugin
from nibblespec.conformance.suite.backends import BackendNotFoundError, claims, find_backend
from nibblespec.conformance.suite.run import Outcome, _Hooks, run
from nibblespec.conformance.suite.session import Preset
from nibblespec.reference import backend as reference
from nibblespec.reference.backend import ReferenceBackend
from nibblespec.spec.operations import OPERATIONS

from tests.suite_backends import Changed

ROOT = Path(__file__).parent.parent


def big_endian(codes: Any, nbits: int) -> Any:  # noqa: ANN401
    """Pack the first code into the highest bits: a fault."""
    return reference.pack_words(codes, nbits).byteswap()


def raising(*_arguments: Any) -> Any:  # noqa: ANN401
    """Raise whatever the call: an error."""
    raise RuntimeError("no kernel")


def packing(backend: object, **options: Any) -> Outcome:  # noqa: ANN401
    """Run the tests of packing alone."""
    return run(backend, files=["test_packing.py"], max_examples=5, **options)  # type: ignore[arg-type]  # faulty ones too


def results(outcome: Outcome) -> dict[str, str]:
    """Return results by the names of the test functions."""
    return {found.test.partition("::")[2]: found.result for found in outcome.results}


def test_reference_passes() -> None:
    outcome = packing(reference)
    assert outcome.exit_status == 0
    assert set(results(outcome).values()) == {"pass"}


def test_wrong_answer_is_a_failure_that_explains_itself() -> None:
    outcome = packing(Changed({"pack_words": big_endian}))
    assert outcome.exit_status == 1
    assert results(outcome)["test_golden_words_are_packed"] == "fail"
    output = outcome.output
    assert "DQ1-PACKING-ORDER (MUST; dashq_packed_linear/v1/specification.md, 6. Packing)" in output
    assert "pack_words: differs from the specification's value" in output
    assert "first at [0]: expected" in output
    assert "(0x08fac688), found" in output
    assert "of 2 elements" in output
    assert "largest difference" in output
    assert "case: GoldenWords(nbits=3" in output
    assert "reproduce: pytest conformance --backend" in output
    assert "-k test_golden_words_are_packed --hypothesis-seed 0 --max-examples 5" in output


def test_exception_is_an_error_and_no_failure() -> None:
    outcome = packing(Changed({"pack_words": raising}))
    assert outcome.exit_status == 1
    assert results(outcome)["test_golden_words_are_packed"] == "error"
    assert "fail" not in results(outcome).values()
    assert "pack_words raised RuntimeError: no kernel" in outcome.output


def test_answer_that_varies_breaks_repetition() -> None:
    turns = iter(range(10**6))

    def pack_words(codes: Any, nbits: int) -> Any:  # noqa: ANN401
        packed = reference.pack_words(codes, nbits)
        return packed ^ np.int32(next(turns) % 2)

    outcome = run(
        Changed({"pack_words": pack_words}),
        files=["test_calls.py"],
        select="same_bits and pack_words",
    )
    assert [found.requirements for found in outcome.results if found.result == "fail"] == [
        ("NUM-INVARIANT-REPEAT",)
    ]


def test_broken_should_warns_and_fails_nothing() -> None:
    outcome = run(
        ReferenceBackend(dashq_rounding="stepwise"),
        files=["test_dashq_reconstruction.py"],
        select="canonical",
    )
    assert outcome.exit_status == 0
    assert [found.result for found in outcome.results] == ["fail"]
    assert "broken SHOULD requirements (warnings)" in outcome.output
    assert "expected dashq_rounding fused, found stepwise" in outcome.output
    assert "1 warned" in outcome.output


@pytest.mark.parametrize("evaluation", ["stepwise", "bf16-params"])
def test_reference_passes_in_its_other_evaluations(evaluation: Any) -> None:  # noqa: ANN401
    backend = ReferenceBackend(dashq_rounding=evaluation, linear_weight_rounding="unrounded")
    outcome = run(backend, select="dashq", max_examples=10)
    assert outcome.exit_status == 0, outcome.output
    evaluated = results(outcome)[f"test_{evaluation.replace('-', '_')}_weights_have_their_bits"]
    assert evaluated == "pass"
    assert results(outcome)["test_fused_weights_have_their_bits"] == "not-claimed"


@pytest.mark.parametrize("first", [1, 2, 17])
def test_reference_passes_in_the_mode_prefill_f16(first: int) -> None:
    backend = ReferenceBackend(prefill_f16_from=first)
    outcome = run(backend, select="nested_linear", max_examples=10)
    assert outcome.exit_status == 0, outcome.output
    assert results(outcome)["test_prefill_f16_is_a_product_of_float16_numbers"] == "pass"


def test_runs_say_what_is_under_test() -> None:
    line = "conformance: backend changed 0 on cpu, 5 examples, seed 7"
    assert line in packing(Changed(), seed=7).output


def drawn(seed: int) -> list[bytes]:
    """Return what a property of packing is tried on."""
    kept: list[bytes] = []

    def pack_words(codes: Any, nbits: int) -> Any:  # noqa: ANN401
        kept.append(bytes([nbits]) + codes.tobytes())
        return reference.pack_words(codes, nbits)

    changed = Changed({"pack_words": pack_words})
    run(changed, files=["test_packing.py"], select="more_or_less", seed=seed, max_examples=100)
    return kept


def test_every_seed_draws_other_cases_and_each_its_own_again() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_cases_do_not_depend_on_the_modules_that_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn(1)
    constants = ", ".join(str(number) for number in range(101, 300, 2))
    (tmp_path / "full_of_numbers.py").write_text(f"NUMBERS = ({constants})\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module("full_of_numbers")
    assert drawn(1) == before


def test_more_examples_are_more_calls() -> None:
    def count(examples: int) -> int:
        calls: list[int] = []

        def pack_words(codes: Any, nbits: int) -> Any:  # noqa: ANN401
            calls.append(nbits)
            return reference.pack_words(codes, nbits)

        changed = Changed({"pack_words": pack_words})
        run(changed, files=["test_packing.py"], select="more_or_less", max_examples=examples)
        return len(calls)

    assert count(30) - count(10) == 20


def test_expected_failure_fails_nothing_and_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "xfails"
    path.write_text(
        "# kept by us\n\n"
        "DQ1-PACKING-ORDER test_golden_words_are_packed big-endian, see #7\n"
        "DQ1-PACKING-ORDER test_every_code_goes_to_its_word_and_bits same\n"
        "DQ1-PACKING-SPARE-WRITTEN same\n"
        "DQ1-PACKING-SIGN same\n"
    )
    outcome = packing(Changed({"pack_words": big_endian}), arguments=[f"--xfails-file={path}"])
    assert outcome.exit_status == 0, outcome.output
    assert "4 xfailed" in outcome.output
    overridden = {found.test: found.override for found in outcome.results if found.override}
    golden = overridden["test_packing.py::test_golden_words_are_packed"]
    assert golden == "expected failure: big-endian, see #7"


def test_expected_failure_that_does_not_happen_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "xfails"
    path.write_text("DQ1-PACKING-ORDER test_golden_words_are_packed fixed long ago\n")
    outcome = packing(reference, arguments=[f"--xfails-file={path}"])
    assert outcome.exit_status == 0
    assert "unmatched expected failures" in outcome.output
    assert "DQ1-PACKING-ORDER test_golden_words_are_packed: no test of this run" in outcome.output


def test_expected_failure_does_not_hide_another(tmp_path: Path) -> None:
    path = tmp_path / "xfails"
    path.write_text("DQ1-PACKING-SPARE-WRITTEN known\n")
    outcome = packing(Changed({"pack_words": big_endian}), arguments=[f"--xfails-file={path}"])
    assert outcome.exit_status == 1


def test_expected_failures_are_left_out_in_mode_skip(tmp_path: Path) -> None:
    path = tmp_path / "xfails"
    path.write_text("DQ1-PACKING-ORDER known\n")
    arguments = [f"--xfails-file={path}", "--xfail-mode=skip"]
    outcome = packing(Changed({"pack_words": raising}), arguments=arguments)
    assert results(outcome)["test_golden_words_are_packed"] == "skipped"
    assert results(outcome)["test_golden_words_are_unpacked"] == "skipped"
    assert "unmatched" not in outcome.output


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("DQ1-NO-SUCH reason", "xfails:1: expected a requirement id, found 'DQ1-NO-SUCH'"),
        ("DQ1-PACKING-ORDER", "xfails:1: expected 'REQUIREMENT-ID [test] reason', found no reason"),
        ("DQ1-PACKING-ORDER test_x", "found no reason"),
    ],
)
def test_line_that_is_no_entry_is_one_clear_error(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "xfails"
    path.write_text(line + "\n")
    outcome = packing(reference, arguments=[f"--xfails-file={path}"])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert said in outcome.output
    assert "Traceback" not in outcome.output


def test_xfails_file_that_is_missing_is_one_clear_error(tmp_path: Path) -> None:
    outcome = packing(reference, arguments=[f"--xfails-file={tmp_path / 'none'}"])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert "cannot be read" in outcome.output


@pytest.mark.parametrize("value", ["0", "-3", "many", "1000001"])
def test_number_of_examples_is_positive(value: str) -> None:
    outcome = packing(reference, arguments=[f"--max-examples={value}"])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR


def test_unknown_requirement_ids_stop_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "from nibblespec.conformance.suite.markers import requirement\n"
        "@requirement('DQ1-NO-SUCH')\n"
        "def test_it(): pass\n"
    )
    monkeypatch.setattr(plugin, "SUITE", tmp_path)
    outcome = run(reference, files=[str(test)])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert "no requirement DQ1-NO-SUCH in the text" in outcome.output


def test_test_that_states_no_requirement_stops_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(): pass\n")
    monkeypatch.setattr(plugin, "SUITE", tmp_path)
    outcome = run(reference, files=[str(test)])
    assert outcome.exit_status == pytest.ExitCode.USAGE_ERROR
    assert "states no requirement" in outcome.output


def test_other_tests_of_a_run_are_left_alone(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(): pass\n")
    options = "-p", "nibblespec.conformance.plugin", "--backend=no_such_module:backend"
    done = pytest_process(str(test), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conformance" not in done.stdout


def test_named_backends_are_found() -> None:
    assert find_backend("reference") is reference
    assert find_backend("nibblespec.reference:backend") is reference


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "fast",
            "expected reference, optimized, torch, module:attribute or exec:COMMAND, found 'fast'",
        ),
        ("no_such_module:x", "cannot be imported: ModuleNotFoundError"),
        ("nibblespec.reference:missing", "nibblespec.reference has no attribute missing"),
        ("math:pi", "expected an object with a string 'name', found 'none'"),
        ("nibblespec.reference:", "exec:COMMAND, found 'nibblespec.reference:'"),
    ],
)
def test_backend_that_cannot_be_had_is_explained(name: str, said: str) -> None:
    with pytest.raises(BackendNotFoundError) as caught:
        find_backend(name)
    assert said in str(caught.value)


def test_optimized_backend_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nibblespec.optimized", None)
    with pytest.raises(BackendNotFoundError, match=r"pip install 'nibblespec\[optimized\]'"):
        find_backend("torch")


def test_attribute_that_fails_to_import_is_explained_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def __getattr__(name):\n    raise ImportError(f'{name} needs a GPU')\n"
    (tmp_path / "lazy_backends.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendNotFoundError, match="ImportError: backend needs a GPU"):
        find_backend("lazy_backends:backend")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"operations": ("pack",)}, "operations claims 'pack'"),
        ({"bit_widths": (9,)}, "bit_widths claims 9"),
        ({"dtypes": ("fp16",)}, "dtypes claims 'fp16'"),
        ({"dashq_rounding": "best"}, "dashq_rounding is 'best'"),
        ({"scale_zero_dtypes": ("fp8",)}, "scale_zero_dtypes claims 'fp8'"),
        ({"group_sizes": (32, 0)}, "group_sizes claims 0, expected positive numbers"),
        ({"group_sizes": 128}, "group_sizes is 128, expected a tuple"),
        ({"head_dims": (65,)}, "head_dims claims 65, expected positive even numbers"),
        ({"hadamard_orders": (True,)}, "hadamard_orders claims True"),
        ({"prefill_f16_from": 0}, "prefill_f16_from is 0"),
    ],
)
def test_claims_that_make_no_sense_are_explained(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BackendNotFoundError) as caught:
        claims(Changed(claims=wrong))
    assert said in str(caught.value)


def test_run_stops_at_the_first_failure_when_asked() -> None:
    outcome = packing(Changed({"pack_words": big_endian}), stop_at_first=True)
    assert [found.result for found in outcome.results].count("fail") == 1


def test_results_cover_the_operations_one_by_one() -> None:
    outcome = run(reference, files=["test_calls.py"], select="form and stay")
    assert len(outcome.results) == len(OPERATIONS)


def test_pytest_finds_the_suite_from_the_checkout() -> None:
    done = pytest_process("conformance", "-q", "-k", "golden_words", "--backend", "reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "conformance: backend reference" in done.stdout
    assert "2 passed" in done.stdout


def pytest_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_a_run_hands_to_pytest_can_be_kept_in_a_set() -> None:
    """As pytest 8.4 keeps plugins."""
    first, second = (_Hooks(Preset(), []) for _ in range(2))
    assert len({first, second}) == 2
