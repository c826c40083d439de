"""Credentials for Compute Engine: used, never told, and trouble with them concludes nothing."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from domain.capacity.scan import ScanReport
from tests.workers.capacity.providers.compute_server import PROJECT, ComputeServer, holding, page, reservation
from workers.capacity.providers import gce_client
from workers.capacity.providers.gce import GceSettings

GOOD = page({"zones/europe-west4-a": holding(reservation("h100"))})


def scan_with_key(compute: ComputeServer, path: Path) -> ScanReport:
    """The client itself, because the provider sends real credentials to Google alone."""
    settings = GceSettings(project=PROJECT, credentials=str(path), api_endpoint=compute.address)
    return gce_client.read_reservations(settings, abandoned=threading.Event(), limit_ms=5_000)


def service_account_key(path: Path) -> str:
    """Writes a key file and returns its secret part."""
    secret = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )
    key = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "k1",
        "private_key": secret,
        "client_email": f"scanner@{PROJECT}.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path.write_text(json.dumps(key))
    return secret.splitlines()[1]


def test_a_service_account_signs_its_requests_and_its_key_is_never_told(
    compute: ComputeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = service_account_key(tmp_path / "key.json")
    compute.answers(GOOD)

    report = scan_with_key(compute, tmp_path / "key.json")

    assert report.complete
    assert compute.requests[0].headers["authorization"].startswith("Bearer ey")
    token = compute.requests[0].headers["authorization"].removeprefix("Bearer ")
    assert secret not in caplog.text
    assert token not in caplog.text


@pytest.mark.parametrize(
    "content", ["not json: hunter2", '{"type": "service_account", "private_key": "hunter2"}', "[]"]
)
def test_a_wrong_key_file_concludes_nothing_and_is_not_quoted(
    compute: ComputeServer, tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key.json").write_text(content)

    report = scan_with_key(compute, tmp_path / "key.json")

    assert report.problems == ("the credentials file is not a service account's JSON key",)
    assert not report.complete
    assert "hunter2" not in caplog.text
    assert not compute.requests


def test_a_missing_key_file_concludes_nothing(compute: ComputeServer, tmp_path: Path) -> None:
    report = scan_with_key(compute, tmp_path / "key.json")

    assert report.problems == ("the credentials file cannot be read: No such file or directory",)
    assert not report.complete


def test_a_server_without_credentials_of_its_own_concludes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))

    report = gce_client.read_reservations(GceSettings(project=PROJECT), abandoned=threading.Event(), limit_ms=5_000)

    assert report.problems == ("the credentials could not be used (DefaultCredentialsError)",)
    assert not report.complete
