"""A pod list that the tests write themselves, in the columns of the published one: three weeks, a few dozen GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
END_S = 20 * DAY_S


def line(
    name: str,
    qos: str,
    created_s: int,
    deleted_s: int | str,
    *,
    gpus: int | str = 1,
    milli: int = 1000,
    scheduled_s: int | str = 0,
) -> str:
    return f"{name},4000,8192,{gpus},{milli},,{qos},Running,{created_s},{deleted_s},{scheduled_s}"


def lines() -> list[str]:
    """On seven slots LS is promised 3 and, for whole GPUs in the second and third week, 1 more; Burstable, Guaranteed
    and, at night, BE one each. So nothing is left for the second campaign, and by day not much for anybody else."""
    return [
        *(line(f"ls-long-{number}", "LS", number * HOUR_S, END_S) for number in range(3)),
        line("guaranteed", "Guaranteed", 30, ""),
        line("no-gpu", "LS", 40, 50, gpus=0, milli=0),
        line("ls-part", "LS", DAY_S, 2 * DAY_S, milli=460),
        line("ls-too-many", "LS", DAY_S + HOUR_S, 2 * DAY_S, milli=460, scheduled_s=""),
        line("be-overnight", "BE", 3 * DAY_S + 12 * HOUR_S, 4 * DAY_S + 12 * HOUR_S, milli=590),
        line("be-same-instant", "BE", 3 * DAY_S + 12 * HOUR_S, 5 * DAY_S, milli=590),
        line("burst-over-gap", "Burstable", 6 * DAY_S, 9 * DAY_S),
        line("ls-many", "LS", 10 * DAY_S, 12 * DAY_S, gpus=4),
        line("be-gone-at-once", "BE", 13 * DAY_S, 13 * DAY_S, milli=590),
        line("be-gone-before", "BE", 13 * DAY_S + 1, 13 * DAY_S, milli=590),
        *(
            line(f"be-{number}", "BE", 14 * DAY_S + number * HOUR_S, 14 * DAY_S + (number * 3 + 4) * HOUR_S, milli=590)
            for number in range(24)
        ),
    ]


def write_trace(path: Path, rows: Iterable[str] | None = None, *, header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *(lines() if rows is None else rows)]) + "\n")
    return path
