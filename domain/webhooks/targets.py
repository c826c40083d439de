"""Where deliveries may go: the form of a URL, and the addresses behind its host (8.6, SSRF).

A name is looked up twice: when a subscription is written, and at every delivery, where the connection goes to the very
address that was looked at. What is refused never says which address it was: a tenant must not learn our network by it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from domain.outcomes import InvalidInput
from domain.shapes import quoted
from domain.webhooks.refusals import WebhookUrlInvalid

URL_MAX: Final = 2_048
ENTRIES_MAX: Final = 200
"""Ranges, or patterns, of the security configuration: each is held against every delivery."""
PATTERN_MAX: Final = 512

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_URL_CHARACTERS: Final = re.compile(r"[!-~]+")
_HOST: Final = re.compile(r"(?!-)[a-z0-9_.-]{1,253}")
_PORTS: Final = {"https": 443, "http": 80}

DEFAULT_BLOCKED: Final = (
    # The protocol's own list.
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "::1/128", "fc00::/7"),
    # Nothing of the rest is anybody's public receiver: "this" network, carriers' and test networks, multicast, reserved.
    *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4"),
    *("::/96", "fe80::/10", "ff00::/8"),
    # Addresses of the old kind dressed up as new ones: translated (NAT64), tunnelled (6to4, Teredo).
    *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What an operator lets webhooks do. `allowed_url_patterns` empty: any URL that is not blocked."""

    blocked_cidr_ranges: tuple[str, ...] = DEFAULT_BLOCKED
    allowed_url_patterns: tuple[str, ...] = ()
    allow_http: bool = False


STRICT: Final = Security()
PERMISSIVE: Final = Security(blocked_cidr_ranges=(), allow_http=True)
"""For development and tests, where the receiver is on the same machine. Never the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL taken apart. `host` is what a certificate must name; `authority` is the Host header."""

    scheme: str
    host: str
    port: int
    path: str
    """With the query; never empty."""

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def literal(self) -> Address | None:
        """The address, where the host is one."""
        return read_address(self.host)


def parse_url(url: str) -> Target | WebhookUrlInvalid:
    """Refuses in this order: `length`, `malformed`, `scheme`, `credentials`, `fragment`, `host`, `port`."""
    if not 1 <= len(url) <= URL_MAX:
        return _invalid("length", f"the url must have 1 to {URL_MAX} characters")
    if not _URL_CHARACTERS.fullmatch(url) or "\\" in url:
        return _invalid("malformed", "the url may hold printable ASCII only; write other characters as %XX")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return _invalid("malformed", "the url cannot be read")
    if parts.scheme not in _PORTS:
        return _invalid("scheme", "the url must begin with https://")
    if "@" in parts.netloc:
        return _invalid("credentials", "the url may hold no user and password: send them in a header")
    if parts.fragment or url.endswith("#"):
        return _invalid("fragment", "the url may have no fragment")
    host = parts.hostname or ""
    if read_address(host) is None and (not _HOST.fullmatch(host) or ":" in host):
        return _invalid("host", "the url names no host")
    if port == 0:
        return _invalid("port", "the port must be from 1 to 65535")
    path = parts.path or "/"
    return Target(
        scheme=parts.scheme,
        host=host,
        port=port or _PORTS[parts.scheme],
        path=f"{path}?{parts.query}" if parts.query else path,
    )


def host_of(url: str) -> str:
    """Of a URL that was accepted before."""
    target = parse_url(url)
    assert isinstance(target, Target), "what is kept was checked"
    return target.host


def refuse_target(target: Target, security: Security) -> WebhookUrlInvalid | None:
    """What can be said without looking the host up. Refuses `scheme`, `pattern`, `blocked`."""
    if not target.is_secure and not security.allow_http:
        return _invalid("scheme", "the url must begin with https://")
    patterns = security.allowed_url_patterns
    if patterns and not any(_fits(target, pattern) for pattern in patterns):
        return _invalid("pattern", "the url fits none of the patterns that the operator allows")
    literal = target.literal()
    return None if literal is None else refuse_addresses([literal], security)


def refuse_addresses(addresses: Iterable[Address], security: Security) -> WebhookUrlInvalid | None:
    """One blocked address is enough: whoever answers with a mixture hopes for the other one to be taken."""
    blocked = blocked_networks(security)
    if any(is_blocked(address, blocked) for address in addresses):
        return _invalid("blocked", "the host is, or resolves to, an address that webhooks may not go to")
    return None


@lru_cache(maxsize=8)
def blocked_networks(security: Security) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in security.blocked_cidr_ranges)


def is_blocked(address: Address, networks: Iterable[Network]) -> bool:
    plain = unwrapped(address)
    return any(plain in network for network in networks if network.version == plain.version)


def unwrapped(address: Address) -> Address:
    """`::ffff:10.0.0.1` is 10.0.0.1."""
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped


def read_address(text: str) -> Address | None:
    """Only the strict forms: what else a resolver takes for an address (`127.1`, `0x7f000001`) is looked up as a name."""
    if "%" in text:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def refuse_security(security: Security) -> InvalidInput | None:
    """Refuses in this order: `too-many`, `not-a-range`, `not-a-pattern`."""
    for field in ("blocked_cidr_ranges", "allowed_url_patterns"):
        if len(getattr(security, field)) > ENTRIES_MAX:
            return InvalidInput(field=field, reason="too-many", message=f"{field} has at most {ENTRIES_MAX} entries")
    for text in security.blocked_cidr_ranges:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            message = f"{quoted(text)} is no address range such as 10.0.0.0/8"
            return InvalidInput(field="blocked_cidr_ranges", reason="not-a-range", message=message)
    for pattern in security.allowed_url_patterns:
        if len(pattern) > PATTERN_MAX or _split_pattern(pattern) is None:
            message = f"{quoted(pattern)} is no pattern such as https://*.example.com/*"
            return InvalidInput(field="allowed_url_patterns", reason="not-a-pattern", message=message)
    return None


def _fits(target: Target, pattern: str) -> bool:
    """Part by part: a `*` for hosts must not reach into the path, where the sender of a URL writes what they like."""
    split = _split_pattern(pattern)
    if split is None:
        return False
    scheme, authority, path = split
    return (
        fnmatchcase(target.scheme, scheme)
        and fnmatchcase(target.authority, authority.lower())
        and fnmatchcase(target.path, path)
    )


def _split_pattern(pattern: str) -> tuple[str, str, str] | None:
    """(scheme, authority, path), each a glob. Without a path any will do."""
    scheme, separator, rest = pattern.partition("://")
    authority, slash, path = rest.partition("/")
    if not scheme or not separator or not authority or not _URL_CHARACTERS.fullmatch(pattern):
        return None
    return scheme, authority, f"/{path}" if slash else "*"


def _invalid(reason: str, message: str) -> WebhookUrlInvalid:
    return WebhookUrlInvalid(reason=reason, message=message)
