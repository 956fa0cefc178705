"""A broker where who wants to read must log in, and may do what an ACL allows. Its first listener is open, as a means
to prepare things."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_log import Log, until

from spark_eos.testing import EmbeddedKafka

PASSWORDS = {"admin": "admins-secret", "reader": "readers-secret", "stranger": "strangers-secret"}
WRONG_PASSWORD = "guessed-secret"

LOGINS = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS;User:admin",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
    f"required {LOGINS};",
}


@dataclass
class SecuredKafka:
    """The broker, with options of the source for its users: "reader" gets rights by `allow`, "stranger" none."""

    kafka: EmbeddedKafka

    def login(self, user: str, **changes: str) -> dict[str, str]:
        """What a user sets to log in. Changes have underscores for dots: `sasl_mechanism="SCRAM-SHA-256"`."""
        settings = {
            "bootstrap.servers": self.kafka.second_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }
        settings |= {name.replace("_", "."): value for name, value in changes.items()}
        return {f"kafka.{name}": value for name, value in settings.items()}

    def topic(self) -> Log:
        """A topic with one record, "a"."""
        log = Log(self.kafka.bootstrap_servers, f"topic-{uuid.uuid4().hex[:8]}")
        self.kafka.create_topic(log.topic)
        log.plain("a")
        return log

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Give rights, and wait until the broker knows of them."""
        admin = self._admin()
        exactly, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        for operation in operations:
            wanted = kind, name, exactly, f"User:{user}", "*", operation, allowed
            admin.create_acls([AclBinding(*wanted)])[AclBinding(*wanted)].result(10)
            until(lambda wanted=wanted: bool(admin.describe_acls(AclBindingFilter(*wanted)).result(10)))

    def deny(self, user: str, kind: ResourceType, name: str) -> None:
        """Take all rights away, and wait until the broker knows."""
        admin = self._admin()
        exactly, allowed = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        given = AclBindingFilter(kind, name, exactly, f"User:{user}", "*", AclOperation.ANY, allowed)
        admin.delete_acls([given])[given].result(10)
        until(lambda: not admin.describe_acls(given).result(10))

    def _admin(self) -> AdminClient:
        return AdminClient({key.removeprefix("kafka."): value for key, value in self.login("admin").items()})


@contextmanager
def secured_kafka() -> Iterator[SecuredKafka]:
    with EmbeddedKafka(config=CONFIG, second_listener="SASL_PLAINTEXT") as kafka:
        yield SecuredKafka(kafka)


def no_secret_in(error: BaseException | None, *texts: str) -> None:
    """Neither these texts nor an error and what caused it have a password."""
    shown = list(texts)
    while error is not None:
        shown += [str(error), repr(error), repr(vars(error))]
        error = error.__cause__ or error.__context__
    for secret in [*PASSWORDS.values(), WRONG_PASSWORD]:
        if any(secret in text for text in shown):
            pytest.fail(f"{secret} is shown")
