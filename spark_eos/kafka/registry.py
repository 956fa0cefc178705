"""Records in the Confluent wire format, decoded by confluent-kafka's own registry client and deserializers.

These come with the extra `schema-registry`: nothing else of the package imports this file but where they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError, record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from spark_eos.errors import OptionError, RegistryError
from spark_eos.kafka.protobuf import plain
from spark_eos.options import ClientSettings

DEFAULTS = {"timeout": 30}
"""Seconds; the client itself would wait for ever."""
TEXT = "text"
"""The one field of a decoded JSON record."""
SCHEMA_NOT_FOUND = 40403
"""The registry's code for a schema id that it does not have; any other 404 comes from a wrong URL or a proxy."""
MAX_SCHEMA_ID = 2**31 - 1
"""Beyond it the registry's own answer would be such a 404: to it an id is a Java int."""
HEADER = 5
"""Bytes before the payload: a zero, and the schema id."""

Decode = Callable[[bytes], Any]


class Registry(SchemaRegistryClient):
    """The client, with one difference: a registry that can't be asked never looks like a bad record.

    Deserializers raise whatever comes up for a bad record, so every question they ask is answered here, or ends in
    a RegistryError. Schemas are cached by the client; that there is none for an id is kept until `forget_unknown`.

    Raises:
        OptionError: the client does not take these settings.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            super().__init__({**DEFAULTS, **settings})
        except Exception as error:
            raise _refused(settings, error) from None
        self._unknown: set[int] = set()

    def forget_unknown(self) -> None:
        """Ask again for schemas that were not there."""
        self._unknown.clear()

    def get_schema(self, schema_id: int, *args: Any, **kwargs: Any) -> Any:
        """The schema of an id; SerializationError if the registry has none."""
        if schema_id <= MAX_SCHEMA_ID and schema_id not in self._unknown:
            try:
                return _ask(super().get_schema, schema_id, *args, **kwargs)
            except SchemaRegistryError:
                self._unknown.add(schema_id)
        raise SerializationError(f"schema id {schema_id} is not in the registry")

    def get_version(self, *args: Any, **kwargs: Any) -> Any:
        """A schema that another one refers to."""
        return _ask(super().get_version, *args, **kwargs)


def _ask(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The registry's answer; SchemaRegistryError if it says that there is no such schema."""
    try:
        return call(*args, **kwargs)
    except SchemaRegistryError as error:
        if error.error_code == SCHEMA_NOT_FOUND:
            raise
        raise _outage(error.http_status_code) from None
    except Exception as error:
        raise RegistryError(
            f"the schema registry gave no answer that can be used ({type(error).__name__})",
            do="See whether it is up and can be reached from every worker, and whether url is its address.",
        ) from None


def _outage(status: int) -> RegistryError:
    """What the registry itself wrote is not quoted: it may repeat what was sent to it."""
    if status in (401, 403):
        return RegistryError(
            f"the schema registry refused this client (HTTP {status})",
            do="Check the credentials in registry, and that they may read schemas.",
        )
    return RegistryError(
        f"the schema registry answered HTTP {status}", do="See its log, and check that url is its address."
    )


def _refused(settings: Mapping[str, Any], error: Exception) -> OptionError:
    """The client's reason, unless it quotes a value: any may be a secret."""
    values = (part.strip(" /") for value in settings.values() for part in str(value).split(","))
    quoted = any(value and value in str(error) for value in values) or "://" in str(error)
    reason = type(error).__name__ if quoted else f"{type(error).__name__}: {error}"
    return OptionError(
        f"the schema registry's client does not take the settings {', '.join(sorted(settings))} ({reason})",
        do="See the settings of confluent_kafka.schema_registry.SchemaRegistryClient; url is required.",
    )


class Decoder:
    """Decodes records of one format. Made once a process: it keeps the client, its connection and its schemas.

    Args:
        registry: where their schemas are.
        decode: one record to its value; raises whatever it likes for a bad one.
    """

    def __init__(self, registry: Registry, decode: Decode) -> None:
        self._registry, self._decode = registry, decode

    def __call__(self, records: Iterable[bytes | None]) -> list[tuple[Any, str | None]]:
        """Each record's value, or None and what is wrong with it. A null record has neither.

        Raises:
            RegistryError: the registry can't be asked, which says nothing about the records.
        """
        self._registry.forget_unknown()
        return [self._one(record) for record in records]

    def _one(self, record: bytes | None) -> tuple[Any, str | None]:
        if record is None:
            return None, None
        # Not left to the deserializers: for a first byte of 1 they ask for a GUID, which not every registry knows.
        if len(record) < HEADER or record[0] != 0:
            return None, "the record does not begin with a zero byte and a schema id"
        try:
            return self._decode(record), None
        except (RegistryError, MemoryError):
            raise
        except SerializationError as error:
            return None, str(error)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"


def _avro(registry: Registry, _: type[Any] | None) -> Decode:
    read: Decode = AvroDeserializer(registry)
    return read


def _json(registry: Registry, _: type[Any] | None) -> Decode:
    """The text, checked against its JSON Schema: Spark's parser knows its own types, decimals and dates better."""
    check = JSONDeserializer(
        None, schema_registry_client=registry, conf={"subject.name.strategy": record_subject_name_strategy}
    )

    def decode(record: bytes) -> dict[str, str]:
        check(record)
        return {TEXT: record[HEADER:].decode()}

    return decode


def _protobuf(registry: Registry, message: type[Any] | None) -> Decode:
    assert message is not None, "from_confluent asks for it"
    expected, somewhere = message.DESCRIPTOR.full_name, SerializationContext("", MessageField.VALUE)

    def check_name(_: SerializationContext, found: str | None) -> None:
        # The deserializer parses any message as the one that it expects; here it tells us which one was written.
        if found not in (None, expected):
            raise SerializationError(f"the record is a {found}, and no {expected}")

    read = ProtobufDeserializer(message, {"subject.name.strategy": check_name}, registry)
    return lambda record: plain(read(record, somewhere))


FORMATS: Mapping[str, Callable[[Registry, type[Any] | None], Decode]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "json": _json,
}


def decoder(form: str, settings: ClientSettings, message: Any) -> Decoder:
    """The decoder of this process for a format and a registry.

    Args:
        form: one of `FORMATS`.
        settings: of the registry's client.
        message: for protobuf, the generated class of the records.

    Raises:
        OptionError: the client does not take these settings.
    """
    return _decoder(form, tuple(sorted(settings.items())), message)


@lru_cache(maxsize=16)
def _decoder(form: str, settings: tuple[tuple[str, Any], ...], message: Any) -> Decoder:
    registry = Registry(dict(settings))
    return Decoder(registry, FORMATS[form](registry, message))
