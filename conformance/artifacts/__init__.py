"""Conformance of files: findings, rules and their driver."""
