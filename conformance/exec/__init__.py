"""Backends in other languages: a program that speaks the exec protocol (spec/exec_protocol.md)."""
