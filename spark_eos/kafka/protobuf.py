"""Protobuf messages as plain Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from datetime import timezone
from typing import Any

from confluent_kafka.schema_registry.common.protobuf import protobuf_to_decimal

WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")

WELL_KNOWN: Mapping[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": lambda message: message.ToDatetime(tzinfo=timezone.utc),
    "google.protobuf.Duration": lambda message: message.ToTimedelta(),
    "confluent.type.Decimal": protobuf_to_decimal,
    **{f"google.protobuf.{kind}Value": lambda message: message.value for kind in WRAPPERS},
}
"""Messages that stand for a scalar."""


def plain(message: Any) -> dict[str, Any]:
    """A message's fields by name: submessages as dicts, enums by name, an unset field as None if that can be told."""
    return {
        field.name: _field(field, getattr(message, field.name))
        if not field.has_presence or message.HasField(field.name)
        else None
        for field in message.DESCRIPTOR.fields
    }


def _field(field: Any, value: Any) -> Any:
    if isinstance(value, MutableMapping):
        kind = field.message_type.fields_by_name["value"]
        return {key: _scalar(kind, each) for key, each in value.items()}
    if isinstance(value, MutableSequence):
        return [_scalar(field, each) for each in value]
    return _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        known = WELL_KNOWN.get(field.message_type.full_name)
        return known(value) if known else plain(value)
    if field.enum_type is not None:
        # A number that this class does not know, from a newer writer, stands for itself.
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else str(value)
    return value
