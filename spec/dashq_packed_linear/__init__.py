"""The format dashq-packed-linear, one subpackage per version."""
