"""Faults that no single call shows: of the fiftieth call, of memory, of the rows beside a row."""

from tests.teeth.mutant import Mutant

RESULT = "    return round_float64(total, dtype)\n"
COUNTED = (
    "    result = round_float64(total, dtype)\n"
    '    nested_linear.calls = getattr(nested_linear, "calls", 0) + 1\n'
)


def of_models(name: str, requirement: str, fault: str, new: str) -> Mutant:
    """Change how the nested layer returns its result."""
    return Mutant(name, "nested_linear", (requirement,), fault, "nested.py", RESULT, new)


MUTANTS = (
    of_models(
        "wrong-at-the-fiftieth-call",
        "NUM-MODEL-OPERATIONS",
        "the fiftieth call of a process has the wrong sign",
        COUNTED + "    return -result if nested_linear.calls == 50 else result\n",
    ),
    of_models(
        "results-share-a-buffer",
        "NUM-MODEL-STATES",
        "results of one shape are written over each other",
        "    result = round_float64(total, dtype)\n"
        '    nested_linear.kept = getattr(nested_linear, "kept", {})\n'
        "    buffer = nested_linear.kept.setdefault((result.shape, dtype), np.empty_like(result))\n"
        "    buffer[...] = result\n"
        "    return buffer\n",
    ),
    of_models(
        "wrong-after-seventy-calls",
        "NUM-MODEL-TOKENS",
        "all but the first seventy calls of a process have the wrong sign",
        COUNTED + "    return -result if nested_linear.calls > 70 else result\n",
    ),
    of_models(
        "few-rows-lose-the-last",
        "BN1-SPECULATE-TOKENS",
        "in calls of two to eight rows the last one is zero",
        "    result = round_float64(total, dtype)\n"
        "    return result * (np.arange(len(result)) < max(1, len(result) - 1))[:, np.newaxis]"
        ".astype(result.dtype) if len(result) <= 8 else result\n",
    ),
    of_models(
        "few-rows-sum-otherwise",
        "BN1-SPECULATE-CACHE",
        "calls of two to eight rows round otherwise than calls of one",
        "    return round_float64(total * (1 + 2.0**-22 * (1 < len(total) <= 8)), dtype)\n",
    ),
)
