"""The command line as people and scripts use it: help, exit codes, JSON (docstring of `server.cli`)."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from domain.authority import EVERYTHING, PURPOSES, TENANT_DEFAULT, Permission
from schema.root import sdl
from server.cli import main, make_parser
from server.commands.common import Progress, bold
from server.process import OldPostgres, check_version
from tests.server.processes import EARMARK, earmark, environment, serving
from workers.schedule import JOB_NAMES

ROOT = Path(__file__).parents[2]
ROOT_KEY = "ein-Schlüssel-der-Wurzel-0123456789-ключ"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


# -- help and wrong calls, in this process -----------------------------------------------------------------------------


def test_help_names_every_command_and_every_setting_and_job() -> None:
    text = make_parser().format_help()
    for command in ("serve", "demo", "migrate", "run", "export-schema", "check", "keys", "replay"):
        assert re.search(rf"^    {command}\b", text, re.MULTILINE), command
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["serve", "--help"], ["EARMARK_DATABASE_URL=", "EARMARK_PORT=7878", "--data-dir"]),
        (["run", "--help"], list(JOB_NAMES)),
        (["keys", "create", "--help"], ["--tenant", "--permission", "--json", *map(str, PURPOSES)]),
        (["demo", "--help"], ["EARMARK_DATABASE_URL", "--quiet"]),
    ],
)
def test_help_is_worked_out_for_each_command(
    arguments: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(arguments)
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [word for word in wanted if word not in text] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "x"],
        ["serve", "--data-dir", ""],
        ["run"],
        ["run", "nonsense"],
        ["keys"],
        ["keys", "create"],
        ["keys", "revoke"],
        ["check", "--nonsense"],
    ],
)
def test_a_wrong_call_is_told_and_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: earmark")


def test_bars_and_colours_are_for_terminals_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    Progress("Building")(1, 2)
    assert bold("x") == "x"
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert bold("x") == "\x1b[1mx\x1b[0m"
    bar = Progress("Building")
    bar(1, 2)
    bar(2, 2)
    assert terminal.getvalue().startswith("\rBuilding ███████████████···············")
    assert terminal.getvalue().endswith("2/2\n")
    monkeypatch.setenv("NO_COLOR", "1")
    assert bold("x") == "x"


# -- processes ---------------------------------------------------------------------------------------------------------


async def test_without_a_command_there_is_help_and_2() -> None:
    bare, version = await asyncio.gather(earmark(), earmark("--version"))
    assert (bare.code, bare.err) == (2, "")
    assert "usage: earmark" in bare.out
    assert (version.code, version.out) == (0, "earmark 0.1.0\n")


async def test_settings_that_are_wrong_end_a_command_with_2_and_a_check_with_1() -> None:
    wrong = {"EARMARK_PROT": "1"}
    migrating, checking = await asyncio.gather(
        earmark("migrate", settings=wrong), earmark("check", "--json", settings=wrong)
    )
    told = "unknown setting EARMARK_PROT: did you mean EARMARK_PORT?"
    assert (migrating.code, migrating.err) == (2, f"earmark: {told}\n")
    assert (checking.code, checking.json["ok"]) == (1, False)
    assert checking.json["checks"][0] == {"check": "settings", "ok": False, "detail": told}


async def test_a_database_that_is_not_there_ends_with_1_and_no_traceback() -> None:
    settings = {"EARMARK_DATABASE_URL": NOWHERE}
    checking, serving_, traced = await asyncio.gather(
        earmark("check", settings=settings),
        earmark("serve", "--port", "0", settings=settings),
        earmark("--traceback", "migrate", settings=settings),
    )
    assert checking.code == 1
    assert re.search(r"^FAIL database", checking.out, re.MULTILINE)
    assert "postgresql://…@127.0.0.1:1/nothing" in checking.out
    assert (serving_.code, serving_.err.count("\n")) == (1, 1)
    told = "cannot connect to the database postgresql://…@127.0.0.1:1/nothing (EARMARK_DATABASE_URL): "
    assert serving_.err.startswith(f"earmark: {told}")
    assert told in checking.out
    assert traced.code == 1
    assert "Traceback" in traced.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["openb", "nowhere.csv"], "No such file"),
        (["openb", ".", "--slots", "0"], "the number of slots must be from 1"),
        (["llm", "nowhere_code.csv"], "No such file"),
        (["llm", ".", "--limit", "0"], "the limit must be at least 1"),
    ],
)
def test_a_replay_that_is_called_wrongly_makes_nothing(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["replay", *arguments, "--data-dir", str(tmp_path / "data")]) == 1
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_check_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--data-dir", str(tmp_path / "typo")]) == 0
    assert f"none yet: the first start makes an embedded PostgreSQL in {tmp_path / 'typo'}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["create", "--tenant", "acme"], ["list"], ["revoke", "key_1"]])
def test_keys_of_nobody_make_no_database(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keys", *arguments, "--data-dir", str(tmp_path / "typo")]) == 1
    assert f"there is no database in {tmp_path / 'typo' / 'postgres'} (--data-dir)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_every_permission_is_explained() -> None:
    assert set(PURPOSES) == {EVERYTHING, *Permission}
    page = (ROOT / "docs" / "permissions.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (yes|) ?\| (.+) \|$", page, re.MULTILINE)
    assert rows == [(str(word), "yes" if word in TENANT_DEFAULT else "", purpose) for word, purpose in PURPOSES.items()]


async def test_the_schema_is_exported_as_it_is_checked_in(tmp_path: Path) -> None:
    written = await earmark("export-schema", "--output", str(tmp_path / "schema.graphql"))
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "schema.graphql").read_text() == sdl()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    pipeline = f"set -o pipefail; '{EARMARK}' export-schema | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{sdl().splitlines()[0]}\n", "")


def test_who_brings_a_database_needs_nothing_of_the_embedded_one() -> None:
    code = "import server.process, server.commands.serve, sys; print('storage.embedded' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\n"


def test_a_strange_package_called_schema_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema" / "__init__.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from server.process import check_packages; check_packages()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert f"the module 'schema' comes from {tmp_path}" in done.stderr


def test_an_old_postgresql_is_told_to_be_one() -> None:
    check_version(150_000)
    with pytest.raises(OldPostgres, match="PostgreSQL 15 or later is needed, this is 14"):
        check_version(140_019)


@pytest.mark.timeout(300)
async def test_your_own_postgresql_from_the_first_migration_to_the_last_key(real_database_url: str) -> None:
    """One story on a server of version 15 or later, whose owner is no superuser."""
    settings = {"EARMARK_DATABASE_URL": real_database_url}

    before = await earmark("check", "--json", settings=settings)
    database = before.json["checks"][-1]
    assert (before.code, database["ok"]) == (0, True)
    assert re.fullmatch(r"PostgreSQL \d+\.\d+, \d+ migrations to apply \(earmark migrate\)", database["detail"])

    migrated = await earmark("migrate", "--json", settings=settings)
    assert migrated.json["applied"][0] == "0001_foundation"

    made = await earmark("keys", "create", "--tenant", "root", "--name", "mine", "--json", settings=settings)
    assert made.code == 0
    assert (made.json["tenantId"], made.json["permissions"]) == ("root", ["*"])

    async with serving(settings={**settings, "EARMARK_ROOT_KEY": ROOT_KEY, "EARMARK_JOBS": "off"}) as server:
        assert "The root key" not in server.plain, "one was given"
        for secret in (made.json["secret"], ROOT_KEY.encode().decode("latin-1")):
            async with server.client() as client:
                headers = [(b"x-api-key", secret.encode("latin-1"))]
                query = {"query": 'mutation { createTenant(input: {tenantId: "t", name: "T"}) { __typename } }'}
                assert (await client.post("/graphql", json=query, headers=headers)).status_code == 200
        await _keys(settings)
        assert (await server.stop(signal.SIGINT)) == 0
    assert (await earmark("check", settings=settings)).out.splitlines()[-1].endswith("migrations applied")


async def _keys(settings: dict[str, str]) -> None:
    created = await earmark(
        "keys", "create", "--tenant", "t", "--permission", "compute:quotas:read", "--json", settings=settings
    )
    key = created.json
    assert (key["tenantId"], key["permissions"]) == ("t", ["compute:quotas:read"])
    revoked = await earmark("keys", "revoke", key["keyId"], settings=settings)
    assert (revoked.code, revoked.out) == (0, f"revoked {key['keyId']}\n")
    everybody, nobody = await asyncio.gather(
        earmark("keys", "list", "--json", "--revoked", settings=settings),
        earmark("keys", "list", "--tenant", "nobody", "--json", settings=settings),
    )
    assert [found["tenantId"] for found in everybody.json] == ["t", "root", "root"]
    assert next(found for found in everybody.json if found["keyId"] == key["keyId"])["revokedAt"] is not None
    assert {"secret", "digest"} & everybody.json[0].keys() == set()
    assert (nobody.code, json.loads(nobody.out)["error"]["code"]) == (1, "NOT_FOUND")
    assert "no such tenant (NOT_FOUND)" in nobody.err


async def test_one_pass_of_a_job(database_url: str) -> None:
    settings = {"EARMARK_DATABASE_URL": database_url}
    text, script = await asyncio.gather(
        earmark("run", "vps.grants", settings=settings), earmark("run", "vps.reservations", "--json", settings=settings)
    )
    assert (text.code, text.out) == (0, "vps.grants: reservations 0, records 0, waiting 0, failed 0\n")
    assert (script.code, script.json["job"]) == (0, "vps.reservations")
    assert script.json["counts"] == {"complete": 0, "incomplete": 0, "skipped": 0, "failed": 0}
