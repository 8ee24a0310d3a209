"""Adapters of the exec protocol that break it, each in one way, for tests of the caller."""
