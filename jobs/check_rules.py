"""What each settlement should become, in plain Python.

Written from the rules as jobs/refunds.py lists them, sharing no code with it: what both get wrong in the same way is
not found, all else is. A test compares the two on thousands of damaged events.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

Row = dict[str, Any]

INT64 = 1 << 63
AT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z")


class Malformed(Exception):
    """A settlement that breaks a rule; the text is the reason its dead letter should give."""


def expected(key: bytes | None, value: bytes | None) -> tuple[Row, Row] | str | None:
    """Refund and audit row of a settlement, the reason of its dead letter, or None when nothing is due."""
    try:
        settlement = _settlement(key, value)
    except Malformed as broken:
        return str(broken)
    if settlement["refund_paise"] == 0:
        return None
    number = hashlib.sha256(settlement["settlement_id"].encode()).hexdigest()[:16]
    both = {"refund_id": f"RFD-{number}"} | {f: settlement[f] for f in ("settlement_id", "merchant", "sequence")}
    refund = both | {"amount_paise": settlement["refund_paise"], "at": settlement["at"]}
    return refund, both | {"actor": "refunds-job", "reason": settlement["reason"]}


def _settlement(key: bytes | None, value: bytes | None) -> Row:
    found = _object(value)
    for name in ("settlement_id", "merchant"):
        _require(_is_text(found.get(name)), f"bad {name}")
    for name, least in (("sequence", 0), ("amount_paise", 1), ("refund_paise", 0)):
        _require(_is_number(found.get(name), least), f"bad {name}")
    _require(_is_text(found.get("reason")), "bad reason")
    at = found.get("at")
    _require(isinstance(at, str) and AT.fullmatch(at) is not None, "bad at")
    _require(found["refund_paise"] <= found["amount_paise"], "refund above amount")
    _require(key == found["merchant"].encode(), "key is not the merchant")
    return found


def _object(value: bytes | None) -> Row:
    _require(bool(value), "empty value")
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        raise Malformed("not UTF-8") from None
    try:
        found = json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False).encode()  # "\ud800" is half a character
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    _require(isinstance(found, dict), "not an object")
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> Row:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise Malformed(reason)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_number(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < INT64  # bool is an int too
