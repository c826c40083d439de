"""CPU time of Python processes and of a whole PostgreSQL: what barely moves when the machine is shared."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import psutil


class CpuSeconds(NamedTuple):
    """User and system time since the processes began."""

    python: float
    postgres: float


class Processors:
    """Reads both. The postmaster counts with its living children and with those that it has seen end."""

    def __init__(self, *, python_pids: Sequence[int], postmaster_pid: int) -> None:
        self._pythons = [psutil.Process(pid) for pid in python_pids]
        self._postmaster = psutil.Process(postmaster_pid)

    def read(self) -> CpuSeconds:
        return CpuSeconds(sum(map(_own_seconds, self._pythons)), self._postgres_seconds())

    def _postgres_seconds(self) -> float:
        times = self._postmaster.cpu_times()
        seconds = times.user + times.system + times.children_user + times.children_system
        for child in self._postmaster.children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile: the postmaster has it next time
                seconds += _own_seconds(child)
        return seconds


def _own_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
