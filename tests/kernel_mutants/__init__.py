"""Kernels with one small fault each, and what rejects them: proof that the checks have teeth."""
