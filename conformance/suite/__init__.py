"""The conformance suite: property tests of a backend, one file per section of the text."""
