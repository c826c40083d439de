"""Which provider serves which account, and which settings an account may be created with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workers.capacity.providers.registry import Registry

PROJECT = {"project": "capacity-prod"}


def test_every_kind_has_its_provider() -> None:
    registry = Registry()

    assert registry.kinds == ("file", "push", "gce")
    for kind in registry.kinds:
        provider = registry.provider_for(kind)
        assert provider is not None
        assert provider.name == kind
        assert provider.scans == (kind != "push")


def test_an_unknown_kind_has_none_and_is_refused() -> None:
    refusal = Registry().validate_settings(kind="aws", settings={})

    assert Registry().provider_for("aws") is None
    assert refusal is not None
    assert (refusal.field, refusal.reason) == ("kind", "unknown-provider")
    assert refusal.message == 'provider must be one of file, push, gce, not "aws"'


def test_files_are_read_only_where_the_operator_allows(tmp_path: Path) -> None:
    settings = {"path": "lab.yaml"}

    assert Registry(inventory_directory=tmp_path).validate_settings(kind="file", settings=settings) is None
    assert Registry().validate_settings(kind="file", settings=settings) is not None


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"project": "example.com:capacity-prod"},
        {"zones": ["europe-west4-a", "us-central1-ai1a"]},
        {"credentials": "/etc/earmark/gce.json", "apiEndpoint": "https://compute-private.p.googleapis.com"},
        {"credentials": "anonymous", "apiEndpoint": "http://127.0.0.1:8080"},
        {"slotsPer": "accelerator", "acceleratorsPerInstance": {"a3-highgpu-8g": 8}},
        {"flavors": {"a3-highgpu-8g": "h100-8x", "n1-standard-8:nvidia-tesla-t4:2": "t4-2x"}},
    ],
)
def test_good_gce_settings_are_accepted(more: dict[str, Any]) -> None:
    assert Registry().validate_settings(kind="gce", settings={**PROJECT, **more}) is None


@pytest.mark.parametrize(
    ("more", "field", "reason"),
    [
        ({"project": None}, "settings.project", "missing"),
        ({"project": "123456789012"}, "settings.project", "malformed"),
        ({"project": "capacity/prod"}, "settings.project", "malformed"),
        ({"project": 7}, "settings.project", "malformed"),
        ({"porject": "x"}, "settings.porject", "unknown-key"),
        ({"zones": []}, "settings.zones", "malformed"),
        ({"zones": "europe-west4-a"}, "settings.zones", "malformed"),
        ({"zones": ["europe-west4-a", "Europe"]}, "settings.zones[1]", "malformed"),
        ({"zones": ["z-a"] * 201}, "settings.zones", "malformed"),
        ({"credentials": "key.json"}, "settings.credentials", "malformed"),
        ({"credentials": {"private_key": "x"}}, "settings.credentials", "malformed"),
        ({"apiEndpoint": "ftp://compute.googleapis.com"}, "settings.apiEndpoint", "malformed"),
        ({"apiEndpoint": "https://user:word@compute.googleapis.com"}, "settings.apiEndpoint", "malformed"),
        ({"apiEndpoint": "https://compute.example.com"}, "settings.apiEndpoint", "untrusted-endpoint"),
        ({"apiEndpoint": "https://evilgoogleapis.com"}, "settings.apiEndpoint", "untrusted-endpoint"),
        ({"apiEndpoint": "http://compute.googleapis.com"}, "settings.apiEndpoint", "untrusted-endpoint"),
        (
            {"apiEndpoint": "http://127.0.0.1:80", "credentials": "/etc/earmark/gce.json"},
            "settings.apiEndpoint",
            "untrusted-endpoint",
        ),
        ({"slotsPer": "rack"}, "settings.slotsPer", "malformed"),
        ({"slotsPer": True}, "settings.slotsPer", "malformed"),
        (
            {"acceleratorsPerInstance": {"a3-highgpu-8g": -1}},
            "settings.acceleratorsPerInstance.a3-highgpu-8g",
            "malformed",
        ),
        (
            {"acceleratorsPerInstance": {"a3-highgpu-8g": True}},
            "settings.acceleratorsPerInstance.a3-highgpu-8g",
            "malformed",
        ),
        ({"acceleratorsPerInstance": [8]}, "settings.acceleratorsPerInstance", "malformed"),
        ({"flavors": {"a3-highgpu-8g": "h100 8x"}}, "settings.flavors.a3-highgpu-8g", "malformed"),
        ({"flavors": {"A3 Mega": "h100"}}, "settings.flavors", "malformed"),
        ({"flavors": {f"n2-standard-{n}": "n2" for n in range(501)}}, "settings.flavors", "malformed"),
    ],
)
def test_wrong_gce_settings_are_refused_with_their_field(more: dict[str, Any], field: str, reason: str) -> None:
    refusal = Registry().validate_settings(kind="gce", settings={**PROJECT, **more})

    assert refusal is not None
    assert (refusal.field, refusal.reason) == (field, reason)


def test_a_refusal_does_not_repeat_a_secret_that_was_given_as_an_object() -> None:
    refusal = Registry().validate_settings(kind="gce", settings={**PROJECT, "credentials": {"private_key": "hunter2"}})

    assert refusal is not None
    assert "hunter2" not in refusal.message


@pytest.mark.parametrize("kind", ["file", "push", "gce"])
@pytest.mark.parametrize("settings", [None, [], "x"])
def test_settings_that_are_no_object_are_refused(kind: str, settings: Any, tmp_path: Path) -> None:
    refusal = Registry(inventory_directory=tmp_path).validate_settings(kind=kind, settings=settings)

    assert refusal is not None
    assert refusal.field == "settings"
