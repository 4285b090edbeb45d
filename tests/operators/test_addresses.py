"""`$ip_address`: versions, networks, and operands that can't be meant."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from evalkit.hosts.casecheck.expected_calls import make_example
from evalkit.operators.compile import OperatorProblems, compile_value

FORMS = 'v4, v6, any, a network such as "10.0.0.0/8" or a list of them, or {version: 4, in: "10.0.0.0/8"}'


@pytest.mark.parametrize(
    ("operand", "accepted", "refused"),
    [
        ("v4", ["127.0.0.1", "255.255.255.255"], ["::1", "1.2.3", "1.2.3.4/32", "01.2.3.4", "", 5, None]),
        ("v6", ["::1", "FE80::1", "2001:db8::1"], ["127.0.0.1", ":::", "[::1]"]),
        ("any", ["127.0.0.1", "::1"], ["localhost", "127.0.0.1:80", 2130706433]),
        (True, ["127.0.0.1", "::1"], ["localhost"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.0", "::1"]),
        (["10.0.0.0/8", "fd00::/8"], ["10.0.0.0", "fd00::1"], ["192.168.0.1", "fe80::1"]),
        ({"version": 6}, ["::1"], ["127.0.0.1"]),
        ({"in": "192.0.2.7"}, ["192.0.2.7"], ["192.0.2.8"]),
        ({"version": 4, "in": ["10.0.0.0/8", "192.168.0.0/16"]}, ["192.168.3.4"], ["172.16.0.1", "::1"]),
    ],
)
def test_an_address_of_a_version_and_network(operand: Any, accepted: list[Any], refused: list[Any]) -> None:
    matcher = compile_value({"$ip_address": operand}, mode="equal")
    assert [value for value in accepted if not matcher.is_match(value)] == []
    assert [value for value in refused if matcher.is_match(value)] == []
    assert pickle.loads(pickle.dumps(matcher)) == compile_value(matcher.to_data(), mode="equal") == matcher
    assert matcher.is_match(make_example({"$ip_address": operand}, lambda reference: None))


@pytest.mark.parametrize(
    ("operand", "actual", "message"),
    [
        ("v4", "::1", 'expected an IPv4 address, got "::1" (it is an IPv6 address)'),
        ("any", "localhost", 'expected an IP address, got "localhost" (it is no IP address)'),
        ("any", 5, "expected an IP address, got 5 (it is a number, not a string)"),
        (
            {"version": 4, "in": ["10.0.0.0/8", "192.168.0.0/16"]},
            "172.16.0.1",
            "expected an IPv4 address in 10.0.0.0/8 or 192.168.0.0/16, "
            'got "172.16.0.1" (it is outside of 10.0.0.0/8 and 192.168.0.0/16)',
        ),
    ],
)
def test_a_mismatch_says_why(operand: Any, actual: Any, message: str) -> None:
    (mismatch,) = compile_value({"$ip_address": operand}, mode="equal").explain(actual)
    assert mismatch.message == message


@pytest.mark.parametrize(
    ("operand", "problem"),
    [
        ("V4", f"x.$ip_address: $ip_address wants {FORMS}, got \"V4\"; did you mean 'v4'?"),
        (4, f"x.$ip_address: $ip_address wants {FORMS}, got 4"),
        (False, f"x.$ip_address: $ip_address wants {FORMS}, got false"),
        ([], f"x.$ip_address: $ip_address wants {FORMS}, got []"),
        ({}, f"x.$ip_address: $ip_address wants {FORMS}, got {{}}"),
        ({"in": []}, f'x.$ip_address: $ip_address wants {FORMS}, got {{"in": []}}'),
        ("10.1.0.0/8", f'x.$ip_address: $ip_address wants {FORMS}, got "10.1.0.0/8"; 10.1.0.0/8 has host bits set'),
        (
            {"version": 6, "in": "10.0.0.0/8"},
            f'x.$ip_address: $ip_address wants {FORMS}, got {{"version": 6, "in": "10.0.0.0/8"}}; '
            "10.0.0.0/8 is an IPv4 network",
        ),
        ({"version": "4"}, 'x.$ip_address.version: version of $ip_address is 4 or 6, got "4"'),
        (
            {"versions": 4},
            "x.$ip_address.versions: $ip_address has no 'versions'; it has version and in; did you mean 'version'?",
        ),
    ],
)
def test_an_operand_that_cannot_be_meant_is_refused(operand: Any, problem: str) -> None:
    with pytest.raises(OperatorProblems) as caught:
        compile_value({"$ip_address": operand}, mode="equal", path=("x",))
    assert str(caught.value) == problem


def test_what_cannot_hold_together_is_refused() -> None:
    for value in ({"$ip_address": "v4", "$gt": 5}, {"$ip_address": "v4", "$eq": "::1"}):
        with pytest.raises(OperatorProblems, match="nothing is"):
            compile_value(value, mode="equal")


def test_a_template_in_the_operand_waits_for_its_value() -> None:
    matcher = compile_value({"$ip_address": {"in": "{{ input.network }}"}}, mode="equal")
    assert matcher.has_templates
    assert matcher.bind(lambda reference: "10.0.0.0/8").is_match("10.1.1.1")
