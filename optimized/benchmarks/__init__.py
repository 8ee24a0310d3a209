"""Benchmarks: python -m nibblespec.optimized.benchmarks."""
