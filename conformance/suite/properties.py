"""`for_all`: a test that holds for every case of a domain, drawn by Hypothesis.

A domain is made from what the backend claims, so that no case asks for more. Its `always` cases
are tried first, whatever the seed: kinds of fault are met by construction, not by luck.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.internal.conjecture import providers
from hypothesis.strategies import SearchStrategy
from nibblespec.conformance.suite.outcomes import BackendError, Violation
from nibblespec.conformance.suite.trial import Trial
from nibblespec.spec.operations import Capabilities

Case = TypeVar("Case")
Test = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Domain(Generic[Case]):
    """The cases of a property: those always tried, and a strategy for more, if there are more."""

    always: tuple[Case, ...]
    strategy: SearchStrategy[Case] | None


def for_all(domain: Callable[[Capabilities], Domain[Case]]) -> Callable[[Test], Test]:
    """Run the test for the cases of `domain(capabilities)`, one at a time, as its `case`.

    The other parameters of the test are fixtures, as ever.
    """

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(trial: Trial, **fixtures: object) -> None:
            _try_all(domain(trial.capabilities), functools.partial(test, **fixtures), trial)

        signature = inspect.signature(test)
        fixtures = [p for p in signature.parameters.values() if p.name not in {"case", "trial"}]
        trial = inspect.Parameter("trial", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__signature__ = signature.replace(parameters=[trial, *fixtures])  # type: ignore[attr-defined]  # read by inspect.signature, and so by pytest
        return run

    return decorate


class _Ended(BaseException):  # Hypothesis lets it through: no error to look into
    """A final error ends the search for cases at once."""

    def __init__(self, error: BackendError) -> None:
        super().__init__(str(error))
        self.error = error


def _try_all(cases: Domain[Any], test: Test, trial: Trial) -> None:
    errors: list[BackendError] = []

    def holds(case: object) -> None:
        try:
            test(case=case)
        except (Violation, BackendError) as error:
            error.case = repr(case)
            if isinstance(error, BackendError):
                errors.append(error)
            raise

    def drawn_holds(case: object) -> None:
        try:
            holds(case)
        except BackendError as error:
            if error.final:
                raise _Ended(error) from None
            raise

    # Not by Hypothesis's @example, which writes out every case, large arrays and all.
    for case in cases.always:
        holds(case)
    if cases.strategy is None:
        return
    try:
        with _draws_from_the_seed_alone():
            seed(trial.seed)(_settings(trial)(given(case=cases.strategy)(drawn_holds)))()
    except _Ended as ended:
        raise ended.error from ended.error.__cause__
    except Flaky as flaky:
        if errors:  # the backend raised, if not every time: no two answers that disagree
            raise errors[-1] from errors[-1].__cause__
        violation = Violation(f"two runs of one call disagree ({flaky})", "NUM-INVARIANT-REPEAT")
        raise violation from flaky


@contextmanager
def _draws_from_the_seed_alone() -> Iterator[None]:
    """Keep Hypothesis from mixing in constants that it finds in the modules of the user.

    It reads their source to draw likely numbers, so that an equal seed would draw other cases
    from a checkout than from a package, and others after every change of a backend. There is no
    public switch; where a version has no such function, there is nothing to keep it from.
    """
    internal: Any = providers
    find = getattr(internal, "_get_local_constants", None)
    cache = getattr(getattr(internal, "CONSTANTS_CACHE", None), "cache", None)
    if find is None or cache is None:
        yield
        return
    internal._get_local_constants = internal.Constants
    cache.clear()
    try:
        yield
    finally:
        internal._get_local_constants = find
        cache.clear()


def _settings(trial: Trial) -> settings:
    return settings(
        max_examples=trial.max_examples,
        phases=[Phase.generate, Phase.shrink] if trial.shrink else [Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
