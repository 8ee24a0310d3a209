"""A failure in words."""

import traceback
from collections.abc import Sequence

from nibblespec.conformance.suite.outcomes import BackendError, Violation
from nibblespec.spec.requirements import requirements


def explain(error: Violation | BackendError, ids: Sequence[str], reproduce: str) -> str:
    """Write a failure: which requirement, what was seen, for which case, how to see it again."""
    stated = [requirements()[name] for name in ids]
    lines = [f"{one.id} ({one.level}; {one.document}, {one.section}): {one.text}" for one in stated]
    lines += ["", str(error)]
    if isinstance(error, BackendError) and error.__cause__ is not None:
        lines += ["".join(traceback.format_exception(error.__cause__))]
    if error.case:
        lines += [f"case: {error.case}"]
    return "\n".join([*lines, f"reproduce: {reproduce}"])
