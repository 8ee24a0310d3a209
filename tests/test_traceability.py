"""Text, validator and suite name the same requirements."""

import pkgutil
from importlib import import_module

from nibblespec.conformance import suite
from nibblespec.spec.requirements import requirements


def ids_by_test() -> dict[str, tuple[str, ...]]:
    """Return the requirement ids of every test function of the suite, as `file::function`."""
    found: dict[str, tuple[str, ...]] = {}
    for module in pkgutil.iter_modules(suite.__path__):
        if not module.name.startswith("test_"):
            continue
        for name, value in vars(import_module(f"{suite.__name__}.{module.name}")).items():
            if name.startswith("test_") and callable(value):
                marks = [mark for mark in value.pytestmark if mark.name == "requirement"]
                found[f"{module.name}.py::{name}"] = tuple(one for m in marks for one in m.args)
    return found


def test_statements_can_be_read_alone() -> None:
    """`nibblespec explain` shows a statement without what stands around it."""
    elsewhere = ("these tables", "this table", "these four", "ones above", "ones below")
    leaning = [
        one.id for one in requirements().values() if any(phrase in one.text for phrase in elsewhere)
    ]
    assert leaning == []


def test_every_requirement_of_backends_has_a_test() -> None:
    stated = {one.id for one in requirements().values() if one.checked_by == "backend"}
    tested = {one for ids in ids_by_test().values() for one in ids}
    assert stated - tested == set()


def test_suite_names_only_requirements_of_backends() -> None:
    stated = {one.id for one in requirements().values() if one.checked_by == "backend"}
    assert {one for ids in ids_by_test().values() for one in ids} - stated == set()


def test_every_test_of_the_suite_states_requirements_of_one_level() -> None:
    for test, ids in ids_by_test().items():
        assert len({requirements()[one].level for one in ids}) == 1, test
