"""Reading `config.json`: the base model's configuration, whose keys are those of Transformers."""

from collections.abc import Iterator, Mapping

from nibblespec.conformance.artifacts.findings import Problem

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Keys under which the configuration of a multimodal model keeps that of its language model."""

Config = Mapping[str, object]


def text_config(config: Config) -> tuple[Config, tuple[str, ...]]:
    """Return the configuration of the language model and the path to it."""
    for key in TEXT_KEYS:
        nested = config.get(key)
        if isinstance(nested, dict):
            return nested, (key,)
    return config, ()


def integer(config: Config, key: str) -> int | None:
    """Return the value of a key where it is an integer of at least 1, None elsewhere."""
    value = config.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else None


def head_dim(config: Config) -> int | None:
    """Return `head_dim`, or what it follows from where it is not given."""
    if config.get("head_dim") is not None:
        return integer(config, "head_dim")
    hidden, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    return hidden // heads if hidden and heads and hidden % heads == 0 else None


def key_value_heads(config: Config) -> int | None:
    """Return `num_key_value_heads`, or the number of query heads where it is not given."""
    given = config.get("num_key_value_heads") is not None
    return integer(config, "num_key_value_heads" if given else "num_attention_heads")


def width_problem(
    *,
    file: str,
    place: str,
    message: str,
    expected: tuple[int | None, ...],
    source: str,
    found: int,
) -> Iterator[Problem]:
    """Yield a problem where a width is none of the expected ones, as far as these are known."""
    known = [size for size in expected if size is not None]
    if known and found not in known:
        yield Problem(
            message=message,
            file=file,
            pointer=place,
            expected=f"{' or '.join(f'{size}' for size in known)} ({source} of config.json)",
            found=str(found),
        )
