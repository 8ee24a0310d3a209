"""All broken backends, by subject, in the order of the specification."""

from collections.abc import Mapping

from tests.teeth import (
    activations,
    attention,
    contract,
    dashq,
    dashq_linear,
    hadamard,
    kv,
    nested,
    nested_kernels,
    packing,
    planes,
    rounding,
    softmax,
    whole_models,
)
from tests.teeth.mutant import Mutant

BY_SUBJECT: Mapping[str, tuple[Mutant, ...]] = {
    "Packing of words": packing.MUTANTS,
    "dashq reconstruction": dashq.MUTANTS,
    "Rounding": rounding.MUTANTS,
    "The packed linear layer": dashq_linear.MUTANTS,
    "Nibble planes and nested weights": planes.MUTANTS,
    "Activations": activations.MUTANTS,
    "The nested linear layer": (*nested.MUTANTS, *nested_kernels.MUTANTS),
    "The online Hadamard transform": hadamard.MUTANTS,
    "The nested KV cache": kv.MUTANTS,
    "Attention": (*attention.MUTANTS, *softmax.MUTANTS),
    "The contract of a call": contract.MUTANTS,
    "Whole models": whole_models.MUTANTS,
}

MUTANTS = tuple(mutant for mutants in BY_SUBJECT.values() for mutant in mutants)
