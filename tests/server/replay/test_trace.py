from __future__ import annotations

from pathlib import Path

import pytest

from server.replay.trace import POD_LIST, TraceError, read_trace
from tests.server.replay.small_trace import DAY_S, END_S, HEADER, line, write_trace


def test_every_kind_of_pod_is_counted(small_trace: Path) -> None:
    trace = read_trace(small_trace)
    assert trace.lines == 37
    assert len(trace.pods) == 36
    assert trace.gpus == 39
    assert trace.without_gpu == 1
    assert trace.with_several_gpus == 1
    assert trace.never_scheduled == 1
    assert trace.never_deleted == 1
    assert trace.gone_at_once == 2
    assert trace.ends_s == END_S


def test_a_pod_has_what_its_line_says(tmp_path: Path) -> None:
    rows = [line("a", "LS", 5, 9, gpus=2), line("b", "BE", DAY_S, "", milli=460, scheduled_s="")]
    first, second = read_trace(write_trace(tmp_path / "pods.csv", rows)).pods
    assert (first.name, first.qos, first.gpus, first.takes_whole_gpus) == ("a", "LS", 2, True)
    assert (first.created_s, first.deleted_s, first.was_scheduled) == (5, 9, True)
    assert (second.takes_whole_gpus, second.deleted_s, second.was_scheduled) == (False, None, False)


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    header = "qos,name,deletion_time,creation_time,scheduled_time,gpu_milli,num_gpu"
    path = write_trace(tmp_path / "pods.csv", ["LS,a,9,5,,1000,1"], header=header)
    assert [(pod.name, pod.created_s, pod.deleted_s) for pod in read_trace(path).pods] == [("a", 5, 9)]


def test_the_folder_of_the_trace_stands_for_its_pod_list(tmp_path: Path) -> None:
    write_trace(tmp_path / POD_LIST)
    assert read_trace(tmp_path).lines == 37


def test_a_limit_counts_pods_from_the_start(small_trace: Path) -> None:
    trace = read_trace(small_trace, limit=5)
    assert [pod.name for pod in trace.pods] == ["ls-long-0", "ls-long-1", "ls-long-2", "guaranteed"]
    assert trace.lines == 5


def test_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(f"\ufeff{HEADER}\r\n{line('a', 'LS', 1, 2)}\r\n\r\n")
    assert len(read_trace(path).pods) == 1


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (line("a b", "LS", 1, 2), "name"),
        (line("", "LS", 1, 2), "name"),
        (line("a", "L S", 1, 2), "qos"),
        (line("a", "LS", 1, 2, gpus="two"), "num_gpu"),
        (line("a", "LS", 1, 2, gpus=1_001), "num_gpu"),
        (line("a", "LS", 1, 2, gpus=""), "num_gpu"),
        (line("a", "LS", 1, 2, milli=1_001), "gpu_milli"),
        (line("a", "LS", -1, 2), "creation_time"),
        (line("a", "LS", 1, "2.5"), "deletion_time"),
        (line("a", "LS", 1, "٣"), "deletion_time"),
        (line("a", "LS", 1, 10**9 + 1), "deletion_time"),
        (line("a", "LS", 1, 2, scheduled_s="never"), "scheduled_time"),
    ],
)
def test_a_malformed_value_is_refused_by_line_and_column(tmp_path: Path, bad: str, column: str) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("fine", "LS", 1, 2), bad])
    with pytest.raises(TraceError, match=rf"^pods\.csv, line 3, column {column}: .* must "):
        read_trace(path)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 1, 2), line("b", "LS", 1, 2), line("a", "BE", 3, 4)])
    with pytest.raises(TraceError, match="line 4, column name: 'a' must not be the name of line 2 again"):
        read_trace(path)


def test_a_short_line_names_the_first_column_it_lacks(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", ["a,4000,8192,1,1000,,LS,Running,1"])
    with pytest.raises(TraceError, match="line 2: has 9 columns, not 11: deletion_time is missing"):
        read_trace(path)


def test_a_long_line_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 1, 2) + ",more"])
    with pytest.raises(TraceError, match="line 2: has 12 columns, not 11"):
        read_trace(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("num_gpu", "gpus"), "line 1: there is no column num_gpu"),
        (HEADER.replace("gpu_spec", "qos"), "line 1: there is more than one column qos"),
        ("", "line 1: there is no column name"),
    ],
)
def test_a_wrong_header_is_refused(tmp_path: Path, header: str, message: str) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 1, 2)], header=header)
    with pytest.raises(TraceError, match=message):
        read_trace(path)


def test_broken_quoting_is_refused_by_line(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 1, 2), '"b"c,' + line("b", "LS", 1, 2)])
    with pytest.raises(TraceError, match="line 3"):
        read_trace(path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_bytes(HEADER.encode() + b"\n\xff\xfe\n")
    with pytest.raises(TraceError, match=r"pods\.csv is not text in UTF-8"):
        read_trace(path)


def test_a_list_without_any_gpu_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "pods.csv", [line("a", "LS", 1, 2, gpus=0)])
    with pytest.raises(TraceError, match="has no pod that asks for a GPU"):
        read_trace(path)


def test_a_file_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_trace(tmp_path / "absent.csv")
