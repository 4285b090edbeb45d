"""`$ip_address`: a text that is an IP address, of a version and in a network if the case says so."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from evalkit.errors import did_you_mean
from evalkit.jsonvalue import ARRAY, NUMBER, STRING, get_kind
from evalkit.operators.base import Matcher, Operand, Operator
from evalkit.text.format import format_value

_VERSIONS = {"v4": 4, "v6": 6, "any": None}
_KEYS = ("version", "in")
_FORMS = 'v4, v6, any, a network such as "10.0.0.0/8" or a list of them, or {version: 4, in: "10.0.0.0/8"}'


class InNetwork(Matcher, frozen=True):
    """`$ip_address`: an address of `version` (4, 6 or None for either), in one of `networks` if there are any."""

    version: int | None
    networks: tuple[str, ...]
    operand: Any  # as it is written

    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        return not self._find_fault(actual)

    def _find_fault(self, actual: Any) -> str:
        address = _parse_address(actual) if get_kind(actual) == STRING else None
        if address is None:
            return "it is no IP address"
        if self.version not in (None, address.version):
            return f"it is an IPv{address.version} address"
        if self.networks and not any(address in ip_network(network) for network in self.networks):
            return f"it is outside of {' and '.join(self.networks)}"
        return ""

    def describe_fully(self) -> str:
        network = f" in {' or '.join(self.networks)}" if self.networks else ""
        return f"an IP{f'v{self.version}' if self.version else ''} address{network}"

    def to_data(self) -> Any:
        return {"$ip_address": self.operand}

    def build_hint(self, actual: object) -> str:
        return f" ({self._find_fault(actual)})" if get_kind(actual) == STRING else Matcher.build_hint(self, actual)


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _build_ip_address(operand: Operand) -> Matcher:
    value = operand.value
    if value is True or value in ("v4", "v6", "any"):
        return InNetwork(_VERSIONS.get(value), (), value)
    version, networks = None, value
    if isinstance(value, dict):
        for key in value:
            if key not in _KEYS:
                message = f"$ip_address has no '{key}'; it has version and in{did_you_mean(key, _KEYS)}"
                return operand.compiler.add_problem((*operand.path, key), message, at_key=True)
        version, networks = value.get("version"), value.get("in", [])
        if "version" in value and (get_kind(version) != NUMBER or version not in (4, 6)):
            message = f"version of $ip_address is 4 or 6, got {format_value(version)}"
            return operand.compiler.add_problem((*operand.path, "version"), message)
    texts = networks if get_kind(networks) == ARRAY else [networks]
    is_empty = not texts and not (version and "in" not in value)
    if is_empty or any(get_kind(text) != STRING for text in texts):
        return operand.refuse(_FORMS)
    for text in texts:
        try:
            network = ip_network(text)
        except ValueError as error:
            return operand.refuse(_FORMS, did_you_mean(text, _VERSIONS) or f"; {error}")
        if version not in (None, network.version):
            return operand.refuse(_FORMS, f"; {text} is an IPv{network.version} network")
    return InNetwork(int(version) if version else None, tuple(texts), value)


def _propose_addresses(operand: object) -> Iterator[str]:
    networks = operand.get("in", []) if isinstance(operand, dict) else operand
    for text in networks if isinstance(networks, list) else [networks]:
        yield str(text).partition("/")[0]
    yield from ("192.0.2.1", "2001:db8::1")  # reserved for documentation


ADDRESS_OPERATORS = (
    Operator(
        name="$ip_address",
        doc="an IP address: `v4`, `v6` or `any`; in a network, or one of several; both as `{version, in}`",
        example={"$ip_address": {"version": 4, "in": "10.0.0.0/8"}},
        build=_build_ip_address,
        synonyms=("$ip", "$ipv4", "$ipv6", "$cidr"),
        propose=_propose_addresses,
    ),
)
