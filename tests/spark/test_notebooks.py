"""The notebooks run from top to bottom, each with a broker of its own; and as they are committed, they have run."""

from __future__ import annotations

import ast
import re
import shlex
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from confluent_kafka.admin import AdminClient
from execute import execute
from kafka_log import until
from nbformat import NotebookNode
from quick_spark import QUICK

FOLDER = Path(__file__).parents[2] / "notebooks"
ABSOLUTE_PATH = re.compile(r"(?<![\w./:])/(?:tmp|home|root|work|usr|opt|var|etc|Users|Volumes|databricks)\b|[A-Z]:\\\\")


def quick_start(told: str) -> None:
    assert "12 refunds of 12 settlements" in told
    assert told.count("'refund_id': 'RFD-9001', 'merchant': 'MER-1', 'amount_paise': 9001000") == 1
    assert "run again:             12 refunds, 12 different ones" in told
    assert "four more settlements: 16 refunds, 16 different ones" in told
    assert "next batch: 3" in told


def inside_a_transaction(told: str) -> None:
    ends = re.findall(r"LSO (\d+), high watermark (\d+)\n", told)
    assert ends == [("3", "8"), ("9", "9"), ("9", "11"), ("12", "12")]
    assert re.findall(r"offset: (\d+) .* endTxnMarker: (\w+) ", told)[:3] == [
        ("2", "COMMIT"),
        ("8", "COMMIT"),
        ("11", "ABORT"),
    ]
    states = re.findall(r"(Empty|Ongoing|Prepare\w+|Complete\w+) +epoch", told)
    assert states[:5] == ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    assert states[5:8] == ["PrepareCommit", "PrepareCommit", "CompleteCommit"]  # a crash after the decision
    assert states[8:11] == ["Ongoing", "Ongoing", "CompleteAbort"]  # and before it
    assert "refused: PRODUCER_FENCED: refunds-0 is at epoch 2, not 0" in told
    assert "IllegalTransition: PrepareCommit is never followed by PrepareAbort" in told


def tail_latency(told: str) -> None:
    rows = re.findall(r"^ *([\d.]+) +\d+ +([\d.]+) +([\d.]+)$", told, re.MULTILINE)
    assert [float(length) for length, _, _ in rows] == [0.1, 0.3, 1.0, 3.0]
    for length, middle, tail in (map(float, row) for row in rows):
        assert length / 3 < middle < tail
        assert 0.9 * length < tail
    oldest = {way: float(age) for way, age in re.findall(r"stage.rows=(\w+): .* was ([\d.]+) s old", told)}
    assert oldest["disk"] < oldest["none"]
    assert oldest["none"] > 1


def crash_and_recover(told: str) -> None:
    assert "ended by: SIGKILL" in told
    assert "rows that a read_committed reader has: 100" in told
    assert re.search(r"marker ABORT", told)
    assert "exit code: 0" in told
    figures = dict(re.findall(r"^([a-z -]+?) +(\d+)$", told, re.MULTILINE))
    assert (figures["input records"], figures["rows in settlements-copied"]) == ("300", "300")
    assert (figures["rows aborted or open"], figures["anomalies"]) == ("100", "0")


NOTEBOOKS: dict[str, Callable[[str], None]] = {
    "1_quick_start": quick_start,
    "2_inside_a_transaction": inside_a_transaction,
    "3_tail_latency": tail_latency,
    "4_crash_and_recover": crash_and_recover,
}
"""Name to a check of what it tells."""
SLOW = ("1_quick_start", "3_tail_latency", "4_crash_and_recover")


def told_by(notebook: NotebookNode) -> str:
    """Everything that it prints."""
    assert [output for cell in code(notebook) for output in cell.outputs if output.output_type == "error"] == []
    streams = [output for cell in code(notebook) for output in cell.outputs if output.output_type == "stream"]
    assert [stream.text for stream in streams if stream.name == "stderr"] == []
    return "\n".join(stream.text for stream in streams)


def texts(notebook: NotebookNode) -> Iterator[str]:
    """What stands in its outputs, pictures left out."""
    for output in (output for cell in code(notebook) for output in cell.outputs):
        yield output.get("text", "")
        yield from (str(text) for kind, text in output.get("data", {}).items() if not kind.startswith("image/"))


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shows(cell: NotebookNode) -> bool:
    """Whether a cell prints or draws when it runs: calls in a function's body are not its own."""
    statements = [each for each in ast.parse(cell.source).body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    calls = [node.func for each in statements for node in ast.walk(each) if isinstance(node, ast.Call)]
    names = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
    return bool(names & {"print", "show"})


def test_each_notebook_is_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.large) if n in SLOW else n for n in NOTEBOOKS])
def test_a_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    quick = [word for each in QUICK.items() for word in ("--conf", "=".join(each))]
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join(["--driver-memory", "700m", *quick, "pyspark-shell"]))
    monkeypatch.delenv("BOOTSTRAP_SERVERS", raising=False)
    NOTEBOOKS[name](told_by(execute(FOLDER / f"{name}.ipynb", tmp_path)))


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "says"),
    [("1_quick_start", "16 refunds, 16 different ones"), ("2_inside_a_transaction", "LSO 3, high watermark 8\n")],
)
def test_a_notebook_runs_on_brokers_that_it_is_given_and_deletes_its_topics(name, says, kafka, tmp_path, monkeypatch):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    before = set(admin.list_topics(timeout=10).topics)
    monkeypatch.setenv("BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    assert says in told_by(execute(FOLDER / f"{name}.ipynb", tmp_path))
    stays = {"__consumer_offsets", "__transaction_state", "spark-eos-ledger"}
    until(lambda: set(admin.list_topics(timeout=10).topics) - before <= stays)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_with_its_outputs(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert [cell.source for cell in cells if shows(cell) and not cell.outputs] == []
    NOTEBOOKS[name](told_by(notebook))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_committed_notebook_says_nothing_of_where_it_ran(name):
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    text = "\n".join([*(cell.source for cell in notebook.cells), *texts(notebook)])
    assert ABSOLUTE_PATH.findall(text) == []
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert [cell.metadata for cell in notebook.cells if cell.metadata] == []
