import os
import zlib

import pytest
from prometheus_client import CollectorRegistry

from lab.workloads.batch import BatchMetrics
from lab.workloads.batch_child import BLOCK_WORK, Progress, make_block


def test_progress_sums_what_each_child_has_done():
    progress = Progress(3)
    assert (progress.work(), progress.cpu_seconds()) == (0, 0.0)
    progress.count(0, 5)
    progress.count(2, 7)
    progress.count(2, 8)
    progress.use_cpu(1, 1_500_000_000)
    assert (progress.work(), progress.cpu_seconds()) == (13, 1.5)


def test_progress_made_in_another_process_is_seen():
    progress = Progress(2)
    pid = os.fork()
    if pid == 0:
        progress.count(1, 42)
        os._exit(0)
    os.waitpid(pid, 0)
    assert progress.work() == 42


def test_counters_are_read_when_they_are_scraped():
    progress, registry = Progress(1), CollectorRegistry()
    registry.register(BatchMetrics(progress))
    progress.count(0, 3)
    progress.use_cpu(0, 250_000_000)
    assert registry.get_sample_value("batch_work_done_total") == 3
    assert registry.get_sample_value("batch_cpu_seconds_total") == 0.25


@pytest.mark.parametrize("size", [1024, 131_072, 1 << 20])
def test_a_block_has_its_size_is_the_same_every_time_and_compresses_like_text(size):
    block = make_block(size)
    assert len(block) == size
    assert block == make_block(size)
    assert 0.2 < len(zlib.compress(block)) / size < 0.7


@pytest.mark.parametrize("kind", sorted(BLOCK_WORK))
def test_each_kind_of_work_depends_on_the_whole_block(kind):
    block = make_block(4096)
    assert BLOCK_WORK[kind](block) == BLOCK_WORK[kind](block)
    assert BLOCK_WORK[kind](block) != BLOCK_WORK[kind](block[:-1] + b"\0")
