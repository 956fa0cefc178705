"""The fixtures for users' tests, as a project of theirs has them."""

from __future__ import annotations

import subprocess
import sys

CONFTEST = 'pytest_plugins = ["spark_eos.testing.fixtures"]\n'
TESTS = """
def test_one(simulated_kafka, embedded_kafka):
    simulated_kafka.create_topic("out")
    simulated_kafka.produce("out", ["a"])
    assert [record.value for record in simulated_kafka.records("out")] == [b"a"]
    embedded_kafka.create_topic("out")


def test_simulated_brokers_are_new_for_each_test(simulated_kafka):
    assert simulated_kafka.partitions("out") is None


def test_real_ones_are_the_same(embedded_kafka):
    assert "0" in embedded_kafka.dump_log("out", 0)
"""


def test_a_project_has_them_with_one_line(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_theirs.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr
