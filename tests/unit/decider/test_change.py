"""When rewards have parted from what was believed of them."""

import itertools
import random

from services.decider.core.change import MIN_LESSONS, ChangeDetector


def first_change(surprises):
    detector = ChangeDetector()
    return next((number for number, surprise in enumerate(surprises, 1) if detector.see(surprise)), None)


def test_noise_is_no_change():
    rng = random.Random(1)
    assert first_change([rng.gauss(0.0, 0.15) for _ in range(500)]) is None


def test_rewards_that_fall_by_half_or_rise_by_it_are_a_change_within_a_dozen_lessons():
    rng = random.Random(2)
    calm = [rng.gauss(0.0, 0.1) for _ in range(100)]
    for step in (-0.7, 0.7):
        found = first_change(calm + [step] * 30)
        assert found is not None
        assert 100 < found <= 112


def test_nothing_is_found_within_the_first_lessons_nor_right_after_a_change():
    detector = ChangeDetector()
    found = [detector.see(-1.0 if number % 2 else 1.0 + 0.2 * number) for number in range(60)]
    changes = [number for number, is_change in enumerate(found, 1) if is_change]
    assert changes
    assert min([changes[0], *(b - a for a, b in itertools.pairwise(changes))]) >= MIN_LESSONS


def test_detector_that_was_saved_goes_on_bit_for_bit():
    rng = random.Random(3)
    surprises = [rng.gauss(0.0, 0.2) for _ in range(60)] + [rng.gauss(-0.8, 0.2) for _ in range(60)]
    kept, reborn, changes = ChangeDetector(), ChangeDetector(), 0
    for surprise in surprises:
        saved = reborn.save()
        assert len(saved) == ChangeDetector.size
        reborn = ChangeDetector()
        reborn.load(saved)
        found = kept.see(surprise)
        assert reborn.see(surprise) == found
        assert reborn.save() == kept.save()
        changes += found
    assert changes >= 1
