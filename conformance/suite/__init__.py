"""Conformance of code: the tests that every backend meets."""
