"""Settings: what is unknown or malformed fails the start, and says so (B34)."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from server.options import options_of
from server.settings import PARSERS, Settings, SettingsError, described, load

SECRET = "0123456789abcdef0123456789abcdef"

GOOD = (
    ("EARMARK_DATABASE_URL", "postgres://u:p@h/d", "database_url", "postgres://u:p@h/d"),
    ("EARMARK_DATA_DIR", "~/data", "data_dir", Path("~/data")),
    ("EARMARK_HOST", "0.0.0.0", "host", "0.0.0.0"),
    ("EARMARK_PORT", "0", "port", 0),
    ("EARMARK_PORT", "65535", "port", 65535),
    ("EARMARK_ENVIRONMENT", "production", "environment", "production"),
    ("EARMARK_ROOT_KEY", SECRET, "root_key", SECRET),
    ("EARMARK_ROOT_KEY", "ein Schlüssel mit Umlauten und Blanks", "root_key", "ein Schlüssel mit Umlauten und Blanks"),
    ("EARMARK_ROOT_TENANT", "platform:1", "root_tenant", "platform:1"),
    ("EARMARK_LANES", "16", "lanes", 16),
    ("EARMARK_EVENT_DAYS", "7", "event_days", 7),
    ("EARMARK_LOG_FORMAT", "json", "log_format", "json"),
    ("EARMARK_JOBS", "off", "jobs", False),
    ("EARMARK_DELIVERY_DAYS", "14", "delivery_days", 14),
    ("EARMARK_SECRET_KEY", SECRET, "secret_key", SECRET),
    ("EARMARK_SECRET_KEY_FORMER", SECRET, "secret_key_former", SECRET),
    ("EARMARK_WEBHOOK_PRIVATE_ADDRESSES", "on", "webhook_private_addresses", True),
    ("EARMARK_WEBHOOK_TIMEOUT_SECONDS", "30", "webhook_timeout_seconds", 30),
    ("EARMARK_WEBHOOK_CA_FILE", __file__, "webhook_ca_file", Path(__file__)),
    ("EARMARK_EVIDENCE_SERVER_ID", "https://a.b:8/x/v1", "evidence_server_id", "https://a.b:8/x/v1"),
    ("EARMARK_EVIDENCE_KEY", "0f" * 32, "evidence_key", "0f" * 32),
)

BAD = (
    ("EARMARK_DATABASE_URL", ""),
    ("EARMARK_DATABASE_URL", "mysql://h/d"),
    ("EARMARK_DATA_DIR", ""),
    ("EARMARK_HOST", ""),
    ("EARMARK_HOST", "a b"),
    ("EARMARK_PORT", "65536"),
    ("EARMARK_PORT", "-1"),
    ("EARMARK_PORT", "７８７８"),
    ("EARMARK_PORT", "78.78"),
    ("EARMARK_PORT", ""),
    ("EARMARK_ENVIRONMENT", "prod"),
    ("EARMARK_ROOT_KEY", SECRET[:-1]),
    ("EARMARK_ROOT_KEY", SECRET + " "),
    ("EARMARK_ROOT_KEY", SECRET + "\nx"),
    ("EARMARK_ROOT_KEY", "k" * 513),
    ("EARMARK_ROOT_TENANT", "the root"),
    ("EARMARK_LANES", "0"),
    ("EARMARK_LANES", "17"),
    ("EARMARK_SCAN_SECONDS", "0"),
    ("EARMARK_GONE_AFTER_MISSES", "0"),
    ("EARMARK_EVENT_DAYS", "6"),
    ("EARMARK_ANSWER_DAYS", "0"),
    ("EARMARK_LOG_FORMAT", "xml"),
    ("EARMARK_LOG_LEVEL", "loud"),
    ("EARMARK_JOBS", "yes"),
    ("EARMARK_DELIVERY_DAYS", "0"),
    ("EARMARK_SECRET_KEY", SECRET[:-1]),
    ("EARMARK_SECRET_KEY_FORMER", SECRET[:-1]),
    ("EARMARK_WEBHOOK_PRIVATE_ADDRESSES", "true"),
    ("EARMARK_WEBHOOK_TIMEOUT_SECONDS", "31"),
    ("EARMARK_WEBHOOK_CA_FILE", "/nowhere/ca.pem"),
    ("EARMARK_EVIDENCE_SERVER_ID", "https://a.b/"),
    ("EARMARK_EVIDENCE_SERVER_ID", "https://a.b/v1/"),
    ("EARMARK_EVIDENCE_SERVER_ID", "https://a.b/v1?x"),
    ("EARMARK_EVIDENCE_SERVER_ID", "a.b/v1"),
    ("EARMARK_EVIDENCE_SERVER_ID", 'https://a"b/v1'),
    ("EARMARK_EVIDENCE_KEY", "0f" * 31),
    ("EARMARK_EVIDENCE_KEY", "zz" * 32),
)


@pytest.mark.parametrize(("variable", "text", "name", "value"), GOOD)
def test_a_variable_is_a_setting(variable: str, text: str, name: str, value: object) -> None:
    loaded = load({variable: text})
    assert getattr(loaded, name) == value
    assert type(getattr(loaded, name)) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(("variable", "text"), BAD)
def test_a_malformed_one_is_named_with_what_would_be_right(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} must be ") as caught:
        load({variable: text})
    assert SECRET[:-1] not in str(caught.value)


def test_an_unknown_one_fails_and_the_likely_one_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting EARMARK_PROT: did you mean EARMARK_PORT\?$"):
        load({"EARMARK_PROT": "1"})
    with pytest.raises(SettingsError, match=r"^unknown setting EARMARK_QQQQQQQQQ$"):
        load({"EARMARK_QQQQQQQQQ": "1"})


def test_variables_of_others_and_of_the_tests_are_passed_over() -> None:
    assert load({"PATH": "/bin", "EARMARK_TEST_HOME": "/tmp/x", "earmark_port": "1"}) == Settings()


def test_the_command_line_is_on_top_and_none_is_nothing() -> None:
    loaded = load({"EARMARK_PORT": "1", "EARMARK_HOST": "h"}, port=2, host=None, data_dir=Path("d"))
    assert (loaded.port, loaded.host, loaded.data_dir) == (2, "h", Path("d"))


def test_every_setting_has_a_parser_and_a_word_of_help() -> None:
    names = [item.name for item in fields(Settings)]
    assert sorted(PARSERS) == sorted(names)
    assert [variable for variable, _, _ in described()] == [f"EARMARK_{name.upper()}" for name in names]
    assert all(about for _, _, about in described())


def test_secrets_are_shown_nowhere() -> None:
    loaded = load({"EARMARK_ROOT_KEY": SECRET, "EARMARK_DATABASE_URL": f"postgresql://me:{SECRET}@host:5/db"})
    for text in (repr(loaded), str(loaded.shown())):
        assert SECRET not in text
    assert loaded.shown()["EARMARK_DATABASE_URL"] == "postgresql://…@host:5/db"
    assert loaded.shown()["EARMARK_ROOT_KEY"] == "(given)"


def test_evidence_is_signed_with_a_key_that_is_given_or_made_of_the_secret(tmp_path: Path) -> None:
    wanted = {"EARMARK_EVIDENCE_SERVER_ID": "https://a.b/v1"}
    assert options_of(load({}, data_dir=tmp_path)).evidence_seed is None
    assert (
        options_of(load({"EARMARK_EVIDENCE_KEY": "0f" * 32, **wanted}, data_dir=tmp_path)).evidence_seed == b"\x0f" * 32
    )
    made = options_of(load(wanted, data_dir=tmp_path)).evidence_seed
    assert made is not None
    assert options_of(load(wanted, data_dir=tmp_path)).evidence_seed == made
    unwritable = tmp_path / "file"
    unwritable.write_text("")
    with pytest.raises(SettingsError, match="needs EARMARK_EVIDENCE_KEY or EARMARK_SECRET_KEY"):
        options_of(load(wanted, data_dir=unwritable))


def test_root_keeps_its_data_where_a_plain_user_can_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert Settings().data_dir == Path("/var/lib/earmark")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert Settings().data_dir == Path("/data/earmark")
