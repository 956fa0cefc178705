"""One direction: protocol imports only the standard library, kafka that, spark both. The checker stands alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import spark_eos

ROOT = Path(spark_eos.__file__).parent
OURS = {"spark_eos.errors", "spark_eos.options"}
SOURCE = {"spark_eos.source_options", "spark_eos.source_values"}
ALLOWED = {
    "protocol": (set(sys.stdlib_module_names), {"spark_eos.errors", "spark_eos.protocol"}),
    "kafka": (
        set(sys.stdlib_module_names) | {"confluent_kafka", "tenacity", "pyarrow", "numpy"},
        OURS | SOURCE | {"spark_eos.protocol", "spark_eos.kafka"},
    ),
    "spark": (
        set(sys.stdlib_module_names) | {"pyspark", "pyarrow", "numpy", "xxhash"},
        OURS | SOURCE | {"spark_eos.protocol", "spark_eos.kafka", "spark_eos.spark"},
    ),
    "checker": (set(sys.stdlib_module_names) | {"confluent_kafka", "typer", "rich"}, {"spark_eos.checker"}),
    # Kafka's JARs come from where the tests' broker has them.
    "checker/java_reader.py": (
        set(sys.stdlib_module_names),
        {"spark_eos.checker", "spark_eos.errors", "spark_eos.testing.jars"},
    ),
    "testing/simulated": (
        set(sys.stdlib_module_names),
        {"spark_eos.errors", "spark_eos.protocol", "spark_eos.kafka.topics", "spark_eos.kafka.deadletters"}
        | {"spark_eos.testing.simulated"},
    ),
    # The one file of the simulation that knows Spark.
    "testing/simulated/sink.py": (
        set(sys.stdlib_module_names) | {"pyspark", "pyarrow"},
        OURS
        | {"spark_eos.protocol", "spark_eos.kafka.topics", "spark_eos.kafka.deadletters", "spark_eos.spark"}
        | {"spark_eos.testing.simulated"},
    ),
}


def imports(file: Path):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module or ""


def inside(name: str, packages: set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_is_below_it(layer):
    foreign, ours = ALLOWED[layer]
    files = [ROOT / layer] if layer.endswith(".py") else (ROOT / layer).rglob("*.py")
    for file in files:
        if layer != (own := str(file.relative_to(ROOT))) and own in ALLOWED:
            continue
        for name in imports(file):
            allowed = inside(name, ours) if name.startswith("spark_eos") else name.split(".")[0] in foreign
            assert allowed, f"{file.relative_to(ROOT)} imports {name}"


def test_nothing_of_the_connector_imports_the_checker():
    for file in ROOT.rglob("*.py"):
        if file.parent not in (ROOT / "checker", ROOT / "cli"):  # the command has it as one of its own
            assert not any(inside(name, {"spark_eos.checker"}) for name in imports(file)), file.relative_to(ROOT)


def test_the_simulation_is_of_no_use_to_what_is_simulated():
    for layer in ("protocol", "kafka", "spark"):
        for file in (ROOT / layer).rglob("*.py"):
            assert not any(inside(name, {"spark_eos.testing"}) for name in imports(file)), file.name


def test_only_failures_names_error_codes():
    for file in (ROOT / "kafka").glob("*.py"):
        if file.name != "failures.py":
            assert "KafkaError." not in file.read_text(), file.name
