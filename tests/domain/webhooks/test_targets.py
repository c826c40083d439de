"""Where deliveries may go (section 8.6)."""

from __future__ import annotations

import ipaddress

import pytest

from domain.webhooks.refusals import WebhookUrlInvalid
from domain.webhooks.targets import (
    PERMISSIVE,
    STRICT,
    Security,
    Target,
    blocked_networks,
    is_blocked,
    parse_url,
    refuse_addresses,
    refuse_security,
    refuse_target,
)


def target(url: str) -> Target:
    found = parse_url(url)
    assert isinstance(found, Target), found
    return found


def reason(found: object) -> str | None:
    return found.reason if isinstance(found, WebhookUrlInvalid) else None


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://hooks.example.com", "hooks.example.com", 443, "/", "hooks.example.com"),
        ("https://Hooks.Example.com:443/a?b=c", "hooks.example.com", 443, "/a?b=c", "hooks.example.com"),
        ("https://hooks.example.com:8443/a/../b", "hooks.example.com", 8443, "/a/../b", "hooks.example.com:8443"),
        ("http://192.0.2.1/x", "192.0.2.1", 80, "/x", "192.0.2.1"),
        ("https://[2001:db8::1]:99/", "2001:db8::1", 99, "/", "[2001:db8::1]:99"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, path: str, authority: str) -> None:
    found = target(url)
    assert (found.host, found.port, found.path, found.authority) == (host, port, path, authority)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "length"),
        ("https://x.example/" + "a" * 2_048, "length"),
        ("https://x.example/a b", "malformed"),
        ("https://x.example/\r\nHost: y", "malformed"),
        ("https://bücher.example/", "malformed"),
        ("https://x.example\\@y.example/", "malformed"),
        ("https://[::1", "malformed"),
        ("https://x.example:99999/", "malformed"),
        ("ftp://x.example/", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("//x.example/", "scheme"),
        ("https://u:p@x.example/", "credentials"),
        ("https://@x.example/", "credentials"),
        ("https://x.example/#a", "fragment"),
        ("https:///path", "host"),
        ("https://-x.example/", "host"),
        ("https://[fe80::1%25eth0]/", "host"),
        ("https://x.example:0/", "port"),
    ],
)
def test_what_is_no_url_for_deliveries(url: str, expected: str) -> None:
    assert reason(parse_url(url)) == expected


def test_plain_http_is_for_development() -> None:
    assert reason(refuse_target(target("http://x.example/"), STRICT)) == "scheme"
    assert refuse_target(target("http://x.example/"), PERMISSIVE) is None


@pytest.mark.parametrize(
    "address",
    [
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "127.0.0.1", "127.8.8.8", "169.254.169.254"),
        *("0.0.0.0", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"),
        *("::1", "::", "fc00::1", "fd12::1", "fe80::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "2001:0:1::1"),
    ],
)
def test_addresses_that_are_nobodys_public_receiver_are_blocked(address: str) -> None:
    assert is_blocked(ipaddress.ip_address(address), blocked_networks(STRICT))
    literal = f"[{address}]" if ":" in address else address
    assert reason(refuse_target(target(f"https://{literal}/"), STRICT)) == "blocked"


@pytest.mark.parametrize("address", ["93.184.216.34", "172.32.0.1", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses_are_not(address: str) -> None:
    assert not is_blocked(ipaddress.ip_address(address), blocked_networks(STRICT))


def test_one_blocked_address_among_others_is_enough() -> None:
    mixture = [ipaddress.ip_address(text) for text in ("93.184.216.34", "10.0.0.1")]
    assert reason(refuse_addresses(mixture, STRICT)) == "blocked"
    refused = refuse_addresses(mixture, STRICT)
    assert refused is not None
    assert "10.0.0.1" not in refused.message, "nobody learns our network by it"


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("https://*.example.com/*", "https://hooks.example.com/a/b", True),
        ("https://*.example.com/*", "https://example.com/a", False),
        ("https://*.example.com/*", "https://evil.test/.example.com/a", False),
        ("https://*.example.com/*", "https://evil.test?.example.com/", False),
        ("https://*.example.com/*", "https://hooks.example.com:8443/a", False),
        ("https://*.example.com:*/*", "https://hooks.example.com:8443/a", True),
        ("https://Hooks.Example.com", "https://hooks.example.com/anything", True),
        ("https://hooks.example.com/in/*", "https://hooks.example.com/out/x", False),
        ("*://hooks.example.com/*", "http://hooks.example.com/", True),
    ],
)
def test_patterns_are_held_against_each_part_of_a_url(pattern: str, url: str, expected: bool) -> None:
    security = Security(allowed_url_patterns=("https://other.test/*", pattern), allow_http=True)
    assert (refuse_target(target(url), security) is None) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"blocked_cidr_ranges": ()}, None),
        ({"blocked_cidr_ranges": ("10.0.0.0/8", "::/0")}, None),
        ({"blocked_cidr_ranges": ("10.0.0.1/8",)}, "not-a-range"),
        ({"blocked_cidr_ranges": ("everything",)}, "not-a-range"),
        ({"blocked_cidr_ranges": ("10.0.0.0/8",) * 201}, "too-many"),
        ({"allowed_url_patterns": ("example.com",)}, "not-a-pattern"),
        ({"allowed_url_patterns": ("https://",)}, "not-a-pattern"),
        ({"allowed_url_patterns": ("https://" + "a" * 600,)}, "not-a-pattern"),
    ],
)
def test_a_security_configuration_that_could_not_be_followed_is_refused(
    changes: dict[str, tuple[str, ...]], expected: str | None
) -> None:
    refused = refuse_security(Security(**changes))  # type: ignore[arg-type]
    assert (None if refused is None else refused.reason) == expected
