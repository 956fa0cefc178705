"""Every error code that the client knows has a verb and an error of ours; none is mistaken for an abort."""

from __future__ import annotations

import pickle
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_eos import errors
from spark_eos.kafka.failures import KNOWN, LastWord, Verb, classify, failure, is_transient, transaction_failure

CODES = sorted(
    value for name, value in vars(KafkaError).items() if isinstance(value, int) and not name.startswith("__")
)


def exception(code, **kwargs):
    return KafkaException(KafkaError(code, "told", **kwargs))


def test_the_client_has_the_codes_that_this_test_goes_through():
    assert len(CODES) > 150


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_verb_and_an_error_in_every_phase(code):
    for committing in (True, False):
        for kwargs in ({}, {"retriable": True}, {"txn_requires_abort": True}, {"fatal": True}):
            raised = exception(code, **kwargs)
            verb = classify(raised.args[0], committing=committing)
            error = transaction_failure(raised, "doing it", committing=committing)
            assert isinstance(error, errors.SparkEosError)
            assert error.do
            assert "doing it" in error.what
            assert (verb is Verb.FENCED) == isinstance(error, errors.Fenced)
            assert (verb is Verb.UNCONFIRMED) == isinstance(error, errors.Unconfirmed)
    assert failure(exception(code), "asking").do


@pytest.mark.parametrize("code", CODES)
def test_an_error_of_a_commit_is_never_taken_for_an_abort_unless_the_client_says_so(code):
    assert classify(KafkaError(code), committing=True) in (Verb.UNCONFIRMED, Verb.FENCED)


def test_no_code_means_two_things():
    listed = [code for codes, _, _ in KNOWN for code in codes]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, errors.BrokerUnreachable),
        (KafkaError.SASL_AUTHENTICATION_FAILED, errors.AccessDenied),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, errors.AccessDenied),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.TopicMissing),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.RecordTooLarge),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, errors.TransactionTimeoutTooLong),
        (KafkaError.OFFSET_OUT_OF_RANGE, errors.DataLoss),
        (KafkaError._INVALID_ARG, errors.OptionError),
        (KafkaError.UNKNOWN, errors.ClusterError),
    ],
)
def test_the_codes_that_operators_meet(code, kind):
    assert type(failure(exception(code), "asking")) is kind


def last_word(*codes):
    said = LastWord()
    for code in codes:
        said(KafkaError(code, f"told {code}"))
    return said


def test_a_call_without_an_answer_fails_for_what_the_client_said_last():
    no_answer = exception(KafkaError._TIMED_OUT)
    refused = failure(no_answer, "asking", last_word(KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN))
    assert type(refused) is errors.BrokerUnreachable
    assert refused.what == f"asking: told (_TIMED_OUT); the client's last word: told {KafkaError._TRANSPORT}"
    closed = failure(no_answer, "asking", last_word(KafkaError._ALL_BROKERS_DOWN))
    assert type(closed) is errors.BrokerUnreachable
    assert "another kafka.security.protocol" in closed.what
    not_let_in = failure(no_answer, "asking", last_word(KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN))
    assert type(not_let_in) is errors.AccessDenied
    assert not_let_in.what == f"asking: told {KafkaError._AUTHENTICATION} (_AUTHENTICATION)"


def test_what_the_client_said_before_an_answer_explains_nothing():
    said = last_word(KafkaError._AUTHENTICATION)
    assert failure(exception(KafkaError.UNKNOWN), "asking", said).what == "asking: told (UNKNOWN)"
    assert said.denial() is not None
    assert said.denial(since=time.monotonic() + 1) is None
    said.forget()
    assert said.denial() is None
    assert str(said) == ""


def test_what_is_asked_again():
    assert is_transient(exception(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    assert is_transient(exception(KafkaError.UNSTABLE_OFFSET_COMMIT))
    assert not is_transient(exception(KafkaError._TRANSPORT, retriable=True))
    assert not is_transient(ValueError())


def every_error():
    kinds = [errors.SparkEosError]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__ == errors.__name__:
            yield kind


@pytest.mark.parametrize("kind", sorted(every_error(), key=lambda k: k.__name__))
def test_errors_pickle_with_their_place_and_stand_in_the_tree_of_the_docstring(kind):
    error = kind("it broke", do="Mend it.").at("q", 7, 2)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error) == "[query q, batch 7, lane 2] it broke. What to do: Mend it."
    assert kind.__name__ in (errors.__doc__ or "")
