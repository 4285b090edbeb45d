"""URLs: which machine they are of, and those that are written without their beginning."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit


def is_loopback(url: str) -> bool:
    """Return whether the URL is of this machine. Names below ``localhost`` are not: a resolver may answer anything."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def drop_secret_parts(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def drop_local_port(url: str) -> str:
    """Return a URL of this machine without its port and name, which are others on another day; any other as it is."""
    return urlunsplit(urlsplit(url)._replace(netloc="localhost")) if is_loopback(url) else url


def complete_ollama_host(host: str) -> str:
    """Complete what Ollama's clients take for a URL: ``:8080``, ``example.com``, ``0.0.0.0:11434/path``."""
    place, slash, path = host.partition("/")
    name, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    name, port = (name, port) if colon else (place, "11434")
    return f"http://{name or '127.0.0.1'}:{port}{slash}{path}"


_NEAR_NAMES = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


def is_near(url: str) -> bool:
    """Return whether the URL looks to be of this machine or its own network: by a private address, a name without dots,
    or one of those that such networks give."""
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host.endswith(_NEAR_NAMES) or (bool(host) and "." not in host)
