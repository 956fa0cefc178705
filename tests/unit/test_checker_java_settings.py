"""What Java's client is given of librdkafka's settings."""

from __future__ import annotations

import pytest

from spark_eos.checker import CannotCheck
from spark_eos.checker.java_settings import PLAIN, SCRAM, java_settings


def test_a_login() -> None:
    login = {"security.protocol": "sasl_ssl", "sasl.username": "me", "sasl.password": 'a"b\\c;'}
    found = java_settings(login | {"sasl.mechanisms": "PLAIN", "ssl.ca.location": "/ca.pem"})
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="me" password="a\\"b\\\\c;";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    assert SCRAM in java_settings(login | {"sasl.mechanism": "SCRAM-SHA-512"})["sasl.jaas.config"]
    assert java_settings({"ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.endpoint.identification.algorithm": ""
    }
    assert java_settings({}) == {}


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (
            {"ssl.key.location": "/secret", "debug": "all", "sasl.mechanism": "PLAIN"},
            "be given debug, ssl.key.location$",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "logs in by PLAIN, "),
        ({"sasl.username": "me"}, "logs in by PLAIN, "),
    ],
)
def test_what_it_can_not_be_given_is_an_error(client, told) -> None:
    with pytest.raises(CannotCheck, match=told):
        java_settings(client)
