"""Problems of a JSON document as findings."""

from nibblespec.conformance.artifacts.findings import Finding, Problem, finding
from nibblespec.spec.json_strict import JsonProblem


def json_finding(problem: JsonProblem, file: str) -> Finding:
    """Attach a problem of a document to the requirement that it breaks."""
    return finding(problem.requirement, as_problem(problem), file)


def as_problem(problem: JsonProblem, where: str = "") -> Problem:
    """Return what was seen, without its requirement; `where` comes before the message."""
    return Problem(
        message=where + problem.message,
        pointer=problem.pointer,
        line=problem.line,
        column=problem.column,
        expected=problem.expected,
        found=problem.found,
    )
