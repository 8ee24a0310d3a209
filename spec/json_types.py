"""Scalar types that accept exactly what JSON Schema 2020-12 accepts under the same name."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, Strict
from pydantic_core import CoreSchema, PydanticCustomError

T = TypeVar("T")


def _integral(value: object) -> object:
    """Let 4.0 pass as 4, as JSON Schema does; everything else stays for the strict check.

    Pydantic's strict int refuses 4.0; JSON Schema's ``integer`` is any number without a fraction.
    """
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


# A bound stands before the validator: behind it, JSON Schema would show it under a foreign name.
Integer = Annotated[int, Strict(), BeforeValidator(_integral)]
"""A JSON integer: 4 and 4.0, neither true nor "4"."""

Positive = Annotated[int, Strict(), Field(ge=1), BeforeValidator(_integral)]
"""A JSON integer of at least 1."""

BitWidth = Annotated[int, Strict(), Field(ge=1, le=8), BeforeValidator(_integral)]
"""A JSON integer from 1 to 8."""

Number = Annotated[float, Strict()]
"""A JSON number: neither true nor "4"."""

Text = Annotated[str, Strict()]
"""A JSON string."""

Boolean = Annotated[bool, Strict()]
"""A JSON true or false: neither 0 nor "true"."""


def _one(value: object) -> object:
    """Refuse true, which equals 1 in Python and is no number in JSON."""
    value = _integral(value)
    if isinstance(value, bool):
        raise PydanticCustomError("literal_error", "Input should be 1")
    return value


One = Annotated[Literal[1], BeforeValidator(_one)]
"""The JSON number 1 (1.0 is the same number; true is none)."""


class _NotNull:
    """Takes null out of a nullable type: the key may be absent, its value may not be null."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


Optional = Annotated[T | None, _NotNull()]
"""A key that may be absent (None in Python) but, where present, is no null."""


class JsonObject(BaseModel):
    """A JSON object of a manifest: immutable, unknown keys kept."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())
