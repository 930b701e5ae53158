"""The dead man's switch."""

from services.actuator.core.dead_man import DeadMan


def test_it_fires_once_a_silence_and_is_armed_again_by_a_sign():
    switch = DeadMan(15.0, last_sign=100.0)
    assert not switch.fires(114.9)
    assert switch.fires(115.0)
    assert not switch.fires(115.1)
    assert not switch.fires(1000.0)
    switch.sign(1001.0)
    assert not switch.fires(1015.9)
    assert switch.fires(1016.0)


def test_a_sign_in_time_starts_the_silence_anew():
    switch = DeadMan(15.0, last_sign=0.0)
    switch.sign(14.0)
    assert not switch.fires(28.0)
    assert switch.fires(29.0)
