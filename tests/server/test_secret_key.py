"""The key for secrets at rest: given, or made once and kept where only we can read it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from domain.webhooks.targets import PERMISSIVE, STRICT
from server.options import options_of
from server.secret_key import FILE_NAME, FORMER_FILE_NAME, LENGTH, former_secret_key_of, secret_key_of
from server.settings import Settings


def test_the_given_key_is_taken_and_nothing_is_written(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", secret_key="a key that was given, 32 or more")
    assert secret_key_of(settings) == b"a key that was given, 32 or more"
    assert not (tmp_path / "data").exists()


def test_a_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "deep" / "data")
    made = secret_key_of(settings)
    assert made is not None
    assert len(made) == LENGTH
    file = tmp_path / "deep" / "data" / FILE_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret_key_of(settings) == made
    assert [each.name for each in file.parent.iterdir()] == [FILE_NAME], "nothing is left lying about"


def test_of_several_processes_at_once_all_have_the_same(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: secret_key_of(settings), range(32)))
    assert len(keys) == 1
    assert keys != {None}


def test_a_key_that_was_put_aside_is_the_former_one(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    before = secret_key_of(settings)
    assert former_secret_key_of(settings) is None
    (tmp_path / FILE_NAME).rename(tmp_path / FORMER_FILE_NAME)
    assert secret_key_of(settings) != before
    assert former_secret_key_of(settings) == before
    given = Settings(data_dir=tmp_path, secret_key_former="the key before, of 32 characters or more")
    assert former_secret_key_of(given) == b"the key before, of 32 characters or more"
    assert given.shown()["EARMARK_SECRET_KEY_FORMER"] == "(given)"


def test_where_none_can_be_kept_there_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    assert secret_key_of(Settings(data_dir=tmp_path / "file")) is None
    (tmp_path / FILE_NAME).write_bytes(b"too short")
    assert secret_key_of(Settings(data_dir=tmp_path)) is None
    assert caplog.text.count("EARMARK_SECRET_KEY") == 2


def test_a_secret_key_is_not_shown(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, secret_key="a key that was given, 32 or more")
    options = options_of(settings)
    assert settings.shown()["EARMARK_SECRET_KEY"] == "(given)"
    assert "a key that was given" not in repr(settings)
    assert "a key that was given" not in repr(options)


def test_private_addresses_are_for_those_who_say_so(tmp_path: Path) -> None:
    assert options_of(Settings(data_dir=tmp_path)).webhook_security == STRICT
    assert options_of(Settings(data_dir=tmp_path, webhook_private_addresses=True)).webhook_security == PERMISSIVE
