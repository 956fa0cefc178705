"""The Confluent wire format as structs: what is good, what is corrupt, and what is an outage."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from schema_registry import SchemaRegistry
from spark_all import take_all
from spark_columns import column_of, rows

from spark_eos import from_confluent

UTC = dt.timezone.utc
CONTEXT = SerializationContext("payments", MessageField.VALUE)
PASSWORD = "s3cret-of-the-registry"
CORRUPT = "_corrupt_record"
ID = uuid.UUID(int=7)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(f"reader:{PASSWORD}").serving() as served:
        yield served


@pytest.fixture
def settings(registry: SchemaRegistry) -> dict[str, Any]:
    return {"url": registry.url, "basic.auth.user.info": f"reader:{PASSWORD}", "max.retries": 0}


@pytest.fixture
def client(settings: dict[str, Any]) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient(settings) as found:
        yield found


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


def record(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Payment", "namespace": "shop", "fields": listed})


LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
PAYMENT = record(
    ("account", "string"),
    ("cents", optional("long")),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("id", {"type": "string", "logicalType": "uuid"}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}),
    ("lines", {"type": "array", "items": LINE}),
    ("tags", {"type": "map", "values": optional("int")}),
    ("raw", "bytes"),
    ("rate", optional("float")),
)
PAYMENT_DDL = (
    "account string, cents bigint, price decimal(10,2), at timestamp, local timestamp_ntz, day date, id string,"
    " kind string, lines array<struct<n int>>, tags map<string, int>, raw binary, rate double, missing string"
)
NOON = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=2)))
VALUES = {
    "account": "a-1",
    "cents": None,
    "price": Decimal("12.50"),
    "at": NOON,
    "local": dt.datetime(2026, 3, 1, 12),
    "day": dt.date(2026, 3, 1),
    "id": ID,
    "kind": "CASH",
    "lines": [{"n": 1}, {"n": 2}],
    "tags": {"x": 1, "y": None},
    "raw": b"\x00\xff",
    "rate": 0.5,
}
DECODED = Row(
    account="a-1",
    cents=None,
    price=Decimal("12.50"),
    at=dt.datetime(2026, 3, 1, 10, 0, 0, 123456),
    local=dt.datetime(2026, 3, 1, 12),
    day=dt.date(2026, 3, 1),
    id=str(ID),
    kind="CASH",
    lines=[Row(n=1), Row(n=2)],
    tags={"x": 1, "y": None},
    raw=bytearray(b"\x00\xff"),
    rate=0.5,
    missing=None,
    _corrupt_record=None,
)


def avro(client: SchemaRegistryClient, schema: str, value: Any) -> bytes:
    return AvroSerializer(client, schema)(value, CONTEXT)


def test_avro(spark: SparkSession, client: SchemaRegistryClient, settings: dict[str, Any]) -> None:
    good = avro(client, PAYMENT, VALUES)
    bad = [
        b"\x01" + good[1:],
        good[:-8],
        b"",
        *(b"\x00" + number + good[5:] for number in (b"\x00\x00\x00\x07", b"\xff" * 4)),
    ]
    found, null, *corrupt = rows(column_of(spark, [good, None, *bad]), from_confluent("value", PAYMENT_DDL, settings))
    assert found == DECODED
    assert null is None
    assert all(row.account is None for row in corrupt)
    assert corrupt[0][CORRUPT] == corrupt[2][CORRUPT] == "the record does not begin with a zero byte and a schema id"
    assert corrupt[3][CORRUPT] == "schema id 7 is not in the registry"
    assert corrupt[4][CORRUPT] == "schema id 4294967295 is not in the registry"
    assert all(0 < len(row[CORRUPT]) <= 300 for row in corrupt)


def test_records_are_read_by_the_schema_they_were_written_with(
    spark: SparkSession, client: SchemaRegistryClient, settings: dict[str, Any]
) -> None:
    older = avro(client, record(("a", "int")), {"a": 1})
    newer = avro(client, record(("b", optional("string")), ("a", ["int", "string"])), {"b": "x", "a": 2})
    other = avro(client, record(("b", optional("string")), ("a", ["int", "string"])), {"b": "x", "a": "two"})
    found = rows(column_of(spark, [older, newer, other]), from_confluent(F.col("value"), "a int, b string", settings))
    assert found[:2] == [Row(a=1, b=None, _corrupt_record=None), Row(a=2, b="x", _corrupt_record=None)]
    assert found[2][CORRUPT] == "a is of type str, which is no int"


PROTO = """
    name: "payment.proto" package: "shop" syntax: "proto3"
    dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto"
    dependency: "confluent/type/decimal.proto"
    enum_type { name: "Kind" value { name: "CARD" number: 0 } value { name: "CASH" number: 1 } }
    message_type { name: "Refund" field { name: "reason" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
    message_type {
      name: "Payment"
      field { name: "account" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "cents" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
      field { name: "note" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true oneof_index: 0 }
      field { name: "kind" number: 4 type: TYPE_ENUM type_name: ".shop.Kind" label: LABEL_OPTIONAL }
      field { name: "at" number: 5 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
      field { name: "n" number: 6 type: TYPE_MESSAGE type_name: ".google.protobuf.Int32Value" label: LABEL_OPTIONAL }
      field { name: "price" number: 7 type: TYPE_MESSAGE type_name: ".confluent.type.Decimal" label: LABEL_OPTIONAL }
      field { name: "refunds" number: 8 type: TYPE_MESSAGE type_name: ".shop.Refund" label: LABEL_REPEATED }
      field { name: "tags" number: 9 type: TYPE_MESSAGE type_name: ".shop.Payment.TagsEntry" label: LABEL_REPEATED }
      field { name: "raw" number: 10 type: TYPE_BYTES label: LABEL_OPTIONAL }
      field { name: "rate" number: 11 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
      nested_type {
        name: "TagsEntry" options { map_entry: true }
        field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
        field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
      }
      oneof_decl { name: "_note" }
    }
"""
# What protoc writes into a *_pb2 module.
MODULE = """
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.internal import builder

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile({serialized})
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, "payment_pb2", globals())
"""
PROTO_DDL = (
    "account string, cents bigint, note string, kind string, at timestamp, n int, price decimal(10,2),"
    " refunds array<struct<reason string>>, tags map<string, int>, raw binary, rate double"
)


@pytest.fixture(scope="module")
def payment_pb2(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("proto") / "payment_pb2.py"
    path.write_text(MODULE.format(serialized=text_format.Parse(PROTO, FileDescriptorProto()).SerializeToString()))
    spark.sparkContext.addPyFile(str(path))
    return importlib.import_module("payment_pb2")


def test_protobuf(
    spark: SparkSession, client: SchemaRegistryClient, settings: dict[str, Any], payment_pb2: Any
) -> None:
    def written(message: Any) -> bytes:
        return ProtobufSerializer(type(message), client)(message, CONTEXT)

    full = payment_pb2.Payment(account="a-1", cents=2**60, note="", kind=1, tags={"x": 1}, raw=b"\xff", rate=0.5)
    full.at.FromDatetime(dt.datetime(2026, 3, 1, 12, tzinfo=UTC))
    full.n.value, full.refunds.add().reason = 5, "broken"
    full.price.CopyFrom(decimal_pb2.Decimal(value=(1250).to_bytes(2, "big"), precision=4, scale=2))
    good, empty = written(full), written(payment_pb2.Payment(kind=9))
    bad = [b"\x01" + good[1:], good[:-8], b"\x00\x00\x00\x00\x63" + good[5:], written(payment_pb2.Refund(reason="x"))]
    decoded = from_confluent("value", PROTO_DDL, settings, "protobuf", message=payment_pb2.Payment)
    found, unset, null, *corrupt = rows(column_of(spark, [good, empty, None, *bad]), decoded)

    noon, refunds = dt.datetime(2026, 3, 1, 12), [Row(reason="broken")]
    assert tuple(found)[:7] == ("a-1", 2**60, "", "CASH", noon, 5, Decimal("12.50"))
    assert tuple(found)[7:] == (refunds, {"x": 1}, bytearray(b"\xff"), 0.5, None)
    assert tuple(unset) == ("", 0, None, "9", None, None, None, [], {}, bytearray(), 0.0, None)
    assert null is None
    assert all(row.account is None and row[CORRUPT] for row in corrupt)
    assert corrupt[-2][CORRUPT] == "schema id 99 is not in the registry"
    assert corrupt[-1][CORRUPT] == "the record is a shop.Refund, and no shop.Payment"


def test_json_schema(spark: SparkSession, client: SchemaRegistryClient, settings: dict[str, Any]) -> None:
    properties = {"account": {"type": "string"}, "price": {"type": "number"}, "at": {"type": "string"}}
    schema = {"title": "Payment", "type": "object", "properties": properties, "required": ["account"]}
    good = JSONSerializer(json.dumps(schema), client)({"account": "a-1", "price": 12.5, "at": "2026-03-01"}, CONTEXT)
    long = good[:5] + b'{"account": "a-1", "price": 1234567890123456.78}'
    bad = [good[:5] + b'{"price": 1}', good + b" x", b"\x00\x00\x00\x00\x63{}", good[:5] + b'{"account":"","at":"?"}']
    decoded = from_confluent("value", "account string, price decimal(18,2), at timestamp", settings, "json")
    found, exact, null, *corrupt = rows(column_of(spark, [good, long, None, *bad]), decoded)
    assert tuple(found) == ("a-1", Decimal("12.50"), dt.datetime(2026, 3, 1), None)
    assert exact.price == Decimal("1234567890123456.78")
    assert null is None
    assert corrupt[0] == Row(account=None, price=None, at=None, _corrupt_record="'account' is a required property")
    assert "Extra data" in corrupt[1][CORRUPT]
    assert corrupt[2][CORRUPT] == "schema id 99 is not in the registry"
    assert corrupt[3][CORRUPT] == '{"account":"","at":"?"}'


# --- The registry ---


@pytest.fixture
def good(client: SchemaRegistryClient) -> bytes:
    return avro(client, record(("a", "int")), {"a": 1})


def failure_of(df: DataFrame, settings: dict[str, Any]) -> str:
    with pytest.raises(PythonException) as caught:
        rows(df, from_confluent("value", "a int", settings))
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param((500, {"error_code": 50001, "message": "store"}), "answered HTTP 500", marks=pytest.mark.large),
        ((403, {"error_code": 40301, "message": "no"}), "refused this client (HTTP 403)"),
        pytest.param((404, b"<html>not here</html>"), "answered HTTP 404", marks=pytest.mark.large),
        ((200, b"<html>please log in</html>"), "gave no answer that can be used (JSONDecodeError)"),
    ],
)
def test_a_registry_that_gives_no_schema_fails_the_task_and_makes_no_record_corrupt(
    spark: SparkSession, registry: SchemaRegistry, settings: dict[str, Any], good: bytes, answer: Any, said: str
) -> None:
    registry.broken = answer
    failure = failure_of(column_of(spark, [b"bad", good]), settings)
    assert f"RegistryError: the schema registry {said}" in failure
    registry.broken = None
    assert [row.a for row in rows(column_of(spark, [good]), from_confluent("value", "a int", settings))] == [1]


def test_a_registry_that_is_down_fails_the_task(spark: SparkSession, settings: dict[str, Any], good: bytes) -> None:
    with SchemaRegistry().serving() as gone:
        settings["url"] = gone.url
    failure = failure_of(column_of(spark, [good]), settings)
    assert "the schema registry gave no answer that can be used (ConnectError). What to do: See whether" in failure


def test_a_wrong_password_fails_the_task_and_is_not_shown(
    spark: SparkSession, settings: dict[str, Any], good: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = settings | {"basic.auth.user.info": "reader:wr0ng"}
    failure = failure_of(column_of(spark, [good]), wrong)
    assert "the schema registry refused this client (HTTP 401). What to do: Check the credentials" in failure
    everything = failure + "".join(capfd.readouterr())
    assert "wr0ng" not in everything
    assert "cmVhZGVyOndyMG5n" not in everything, "that is base64 for it"


@pytest.mark.parametrize("form", ["avro", "json"])
def test_no_setting_shows_in_a_plan(
    spark: SparkSession, settings: dict[str, Any], form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    decoded = from_confluent("value", "a int", settings, form)
    df = column_of(spark, []).select(decoded.alias("found")).where("found.a > 0")
    df.explain(True)
    plan = capsys.readouterr().out + repr(decoded) + repr(df)
    assert "decode_confluent" in plan
    assert PASSWORD not in plan
    assert settings["url"] not in plan


@pytest.mark.parametrize("form", ["avro", "json"])
def test_a_filter_on_the_result_does_not_decode_twice(
    spark: SparkSession, settings: dict[str, Any], form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    df = column_of(spark, []).select(from_confluent("value", "a int", settings, form).alias("found"))
    df.where("found._corrupt_record is null").select("found.*").explain()
    assert capsys.readouterr().out.count("ArrowEvalPython") == 1


def test_schemas_are_asked_for_once_a_worker_process(
    spark: SparkSession, registry: SchemaRegistry, settings: dict[str, Any], good: bytes
) -> None:
    unknown = b"\x00\x00\x00\x00\x63\x02"
    df = column_of(spark, [good, unknown] * 50).coalesce(1)
    decoded = from_confluent("value", "a int", settings)
    registry.asked.clear()
    for _ in range(3):
        assert sum(row.a or 0 for row in rows(df, decoded)) == 50
    assert registry.asked.count("GET /schemas/ids/1") <= 2, "of two workers at most"
    assert registry.asked.count("GET /schemas/ids/99") == 3, "once a batch of 100 rows: it may be registered by then"


def test_a_column_that_is_not_binary_is_refused(spark: SparkSession, settings: dict[str, Any]) -> None:
    failure = failure_of(column_of(spark, ["x"], "string"), settings)
    assert "SchemaError: from_confluent was given a column of string. What to do: Give it a binary column." in failure


def test_from_topic_to_rows(
    spark: SparkSession,
    kafka: Any,
    topic: Callable[..., str],
    client: SchemaRegistryClient,
    settings: dict[str, Any],
    tmp_path: Path,
) -> None:
    name, serialize = topic(2), AvroSerializer(client, record(("a", "int")))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(100):
        producer.produce(name, serialize({"a": number}, SerializationContext(name, MessageField.VALUE)), str(number))
    producer.produce(name, b"no avro", "corrupt")
    producer.produce(name, None, "tombstone")
    assert producer.flush(10) == 0
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka-eos").options(**options).load()
    decoded = records.select(
        F.col("key").cast("string").alias("key"), from_confluent("value", "a int", settings).alias("found")
    )
    seen: list[Row] = []
    writing = decoded.writeStream.foreachBatch(lambda batch, _: seen.extend(batch.collect()))
    take_all(writing.option("checkpointLocation", str(tmp_path)))
    found = {row.key: row.found for row in seen}
    assert found.pop("tombstone") is None
    assert found.pop("corrupt") == Row(
        a=None, _corrupt_record="the record does not begin with a zero byte and a schema id"
    )
    assert {key: row.a for key, row in found.items()} == {str(number): number for number in range(100)}
    assert len(seen) == 102
