from runtime.health import Health


def test_it_is_alive_until_the_last_beat_is_older_than_the_limit():
    health = Health(stall_seconds=20.0, last_beat=100.0)
    assert health.alive(120.0) == (True, "last tick 20.0 s ago")
    assert health.alive(120.1) == (False, "last tick 20.1 s ago, limit 20.0 s")
    health.beat(120.1)
    assert health.alive(120.1) == (True, "last tick 0.0 s ago")


def test_it_is_ready_when_nothing_is_missing_and_says_all_that_is():
    health = Health(stall_seconds=20.0, last_beat=0.0)
    assert health.ready() == (True, "ready")
    health.require("host", "cgroup v1")
    health.require("bus", "not connected")
    health.require("bus", "not connected to b")
    assert health.ready() == (False, "bus: not connected to b; host: cgroup v1")
    health.require("bus", None)
    health.require("bus", None)
    assert health.ready() == (False, "host: cgroup v1")
