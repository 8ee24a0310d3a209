"""What a converter says when it cannot go on."""


class ConversionError(ValueError):
    """A model that cannot be converted; the message says what was expected, found, and where."""
