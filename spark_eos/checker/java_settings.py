"""Settings of librdkafka's, as Java's client takes them: those to log in with. Pure."""

from __future__ import annotations

from spark_eos.checker.reader import CannotCheck
from spark_eos.checker.settings import Client

SAME = {"security.protocol", "client.id", "client.rack", "ssl.endpoint.identification.algorithm"}
MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
LOGIN = {"sasl.username": "username", "sasl.password": "password"}
CA = "ssl.ca.location"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}


def java_settings(client: Client) -> dict[str, str]:
    """A client's settings by Java's names.

    Raises:
        CannotCheck: it has one that is not known here: never silently another client than the one asked for.
    """
    unknown = sorted(client.keys() - SAME - {*MECHANISM, *LOGIN, CA})
    if unknown:
        raise CannotCheck(f"the reader in Java can't be given {', '.join(unknown)}")
    found = {name: value for name, value in client.items() if name in SAME}
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    if CA in client:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": client[CA]}
    return found | _login(client)


def _login(client: Client) -> dict[str, str]:
    mechanism = next((client[name] for name in MECHANISM if name in client), None)
    given = {word: client[name] for name, word in LOGIN.items() if name in client}
    if mechanism is None and not given:
        return {}
    if mechanism not in MODULES:
        raise CannotCheck(f"the reader in Java logs in by {', '.join(MODULES)} only")
    words = "".join(f" {word}={_quoted(value)}" for word, value in given.items())
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULES[mechanism]} required{words};"}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
