"""The NumPy reference: every operation, bit-exact, written to be read."""
