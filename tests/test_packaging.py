"""What an installation gets: packages that are ours, every file that the code reads, and locks that anyone can use."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("schema", "domain", "workers", "storage", "server")


def pins(lock: str) -> dict[str, str]:
    """Name to version, of each package in a lock."""
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", PACKAGES)
def test_the_packages_are_ours_and_not_strangers_of_the_same_name(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).is_relative_to(ROOT)
    assert name not in pins("requirements-dev.lock"), "PyPI has a package of this name: it would take the place of ours"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_name_no_address_and_carry_hashes_for_everything(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    for package in re.split(r"\n(?=[a-z0-9])", text.strip()):
        assert "--hash=sha256:" in package, package.splitlines()[0]


def test_both_locks_agree_and_cover_what_the_project_asks_for() -> None:
    at_run_time, in_development = pins("requirements.lock"), pins("requirements-dev.lock")
    assert at_run_time.items() <= in_development.items()
    groups = PROJECT["dependency-groups"]
    wanted = [*PROJECT["project"]["dependencies"], *groups["build"]]
    names = {re.split(r"[\[<>=; ]", line)[0].lower() for line in wanted}
    assert names <= at_run_time.keys()
    optional = PROJECT["project"]["optional-dependencies"].values()
    further = [line for lines in optional for line in lines] + [line for line in groups["dev"] if isinstance(line, str)]
    assert {re.split(r"[\[<>=; ]", line)[0].lower() for line in further} <= in_development.keys()


def test_the_wheel_holds_every_file_of_the_packages_and_the_command(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, check=True, capture_output=True, cwd=ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        (entry_points,) = (name for name in packed if name.endswith("entry_points.txt"))
        assert "earmark = server.cli:main" in archive.read(entry_points).decode()
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    ours = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert "storage/embedded/server.py" in ours
    assert ours - packed == set()


def test_make_without_node_goes_on_without_the_dashboard(tmp_path: Path) -> None:
    """Its target says so and succeeds; what is built otherwise stays as it is."""
    for program in ("bash", "make", "cksum", "cut", "cat", "find"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    said = subprocess.run(
        ["make", "dashboard"], check=True, capture_output=True, text=True, cwd=ROOT, env={"PATH": str(tmp_path)}
    )
    assert "npm is not installed" in said.stdout
