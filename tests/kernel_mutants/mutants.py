"""All broken kernels, and the checks that the suite does not have."""

from collections.abc import Callable, Mapping

from nibblespec.optimized.operations import Operations

from tests import triton_bitnest_checks, triton_checks
from tests.kernel_mutants import bitnest, dashq, transformed

MUTANTS = dashq.MUTANTS + bitnest.MUTANTS + transformed.MUTANTS

CHECKS: Mapping[str, Callable[[Operations], None]] = {
    **triton_checks.CHECKS,
    **triton_bitnest_checks.CHECKS,
}
