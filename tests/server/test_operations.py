"""What operators are given: every metric that alerts, the dashboard and the documentation name is really there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

REPOSITORY: Final = Path(__file__).parents[2]
RULES: Final = REPOSITORY / "deploy" / "prometheus" / "earmark.rules.yml"
SCRAPING: Final = REPOSITORY / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARD: Final = REPOSITORY / "deploy" / "grafana" / "earmark.json"
PAGE: Final = (REPOSITORY / "docs" / "operations.md").read_text()
METRIC: Final = re.compile(r"\b(?:earmark|process)_[a-z_]+\b(?=[{\[)| ,]|$)")
SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def alerts() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in alerts()] + shown


async def exposed(client: httpx2.AsyncClient) -> set[str]:
    """Every name that a sample at /metrics may have."""
    text = (await client.get("/metrics")).text
    families = list(text_string_to_metric_families(text))
    names = {family.name + suffix for family in families for suffix in SUFFIXES.get(family.type, ())}
    return {name for name in names if not name.endswith("_created")}


async def test_every_metric_that_is_watched_is_exposed(client: httpx2.AsyncClient) -> None:
    there = await exposed(client)
    for expression in expressions():
        names = METRIC.findall(expression)
        assert names or "up{" in expression, expression
        assert set(names) <= there, expression


async def test_every_metric_of_ours_is_documented_and_none_besides(client: httpx2.AsyncClient) -> None:
    rows = set(re.findall(r"^\| `(earmark_\w+)` \|", PAGE, re.MULTILINE))
    histograms = ("_bucket", "_sum", "_count")
    ours = {name for name in await exposed(client) if name.startswith("earmark_")}
    assert rows == {name for name in ours if not name.endswith(histograms)} | {
        name.removesuffix("_bucket") for name in ours if name.endswith("_bucket")
    }


def test_labels_that_are_asked_for_are_the_metrics_own() -> None:
    """`job` is taken by Prometheus itself, which then calls ours `exported_job`."""
    rows = re.findall(r"^\| `(earmark_\w+)` \| ([^|]*) \|", PAGE, re.MULTILINE)
    labels = {name: set(re.findall(r"`(\w+)`", told)) for name, told in rows}
    for expression in expressions():
        for name, asked in re.findall(r"\b(earmark_\w+)\{([^}]*)\}", expression):
            known = labels[re.sub(r"_(bucket|sum|count)$", "", name)] | {"instance"}
            known = {{"job": "exported_job"}.get(label, label) for label in known}
            assert set(re.findall(r"(\w+)\s*[=!]", asked)) <= known, expression


def test_the_rules_are_complete_and_each_alert_has_a_paragraph() -> None:
    assert yaml.safe_load(SCRAPING.read_text())["rule_files"] == [RULES.name]
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) > 10
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert f"**{rule['alert']}**" in PAGE, rule["alert"]
    assert set(re.findall(r"\*\*(Earmark\w+)\*\*", PAGE)) == set(names)


def test_prometheus_itself_accepts_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, "check", "config", SCRAPING], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_whole() -> None:
    numbers = [panel["id"] for panel in panels()]
    assert numbers == list(range(1, len(numbers) + 1))
    for panel in panels():
        assert panel["datasource"]["uid"] == "${source}", "whichever Prometheus it is imported beside"
        assert panel["title"]
        assert panel["targets"]


def test_every_setting_about_time_and_limits_is_one() -> None:
    from server.settings import load

    known = {f"EARMARK_{name.upper()}" for name in load({}).__dataclass_fields__}
    assert set(re.findall(r"EARMARK_[A-Z_]+", PAGE)) <= known
