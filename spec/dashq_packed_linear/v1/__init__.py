"""dashq-packed-linear, version 1."""
