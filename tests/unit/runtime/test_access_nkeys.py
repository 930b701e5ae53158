"""Keys in the text form that the server knows."""

import pytest

from runtime.nkeys import UserKey, new_seed

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_the_key_pair_of_the_documentation_of_nats_is_read_as_it_stands_there():
    assert UserKey(SEED).public == PUBLIC


def test_a_nonce_is_signed_as_the_nkeys_package_signs_it():
    assert UserKey(SEED).sign("nonce") == (
        b"AVfpO7Pw3rc56hoO1OJcFxXUCfBmO2qouchBchSlL45Fuur9zS15UzytEI1QC5wwVG7uiHIdqyfmOS6uPrwqCg=="
    )


def test_new_seeds_are_users_seeds_and_all_different():
    seeds = {new_seed() for _ in range(50)}
    assert len(seeds) == 50
    assert {seed[:2] for seed in seeds} == {"SU"}
    assert {len(seed) for seed in seeds} == {58}
    assert {UserKey(seed).public[0] for seed in seeds} == {"U"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is 0 letters long, not 58"),
        ("SUACSSL3", "it is 8 letters long, not 58"),
        ("pässword", "it is 8 letters long, not 58"),
        (SEED[:-1], "it is 57 letters long, not 58"),
        (SEED + SEED, "it is 116 letters long, not 58"),
        (SEED.lower(), "it is not base32"),
        (SEED[:-1] + "ä", "it is not base32"),
        (SEED[:20] + "A" + SEED[21:], "its checksum is wrong: a letter was changed or lost"),
        (PUBLIC, "it is 56 letters long, not 58"),
        # an account's seed, of the documentation too
        ("SAAHPQF3GOP4IP5SHKHCNBOHD5TMGSW4QQL6RTZAPEEYOQ2NRBIAKCCLQA", "it is no user's seed, which begins with SU"),
    ],
)
def test_what_is_no_users_seed_is_refused_without_repeating_it(text, reason):
    with pytest.raises(ValueError, match=r"it is|its") as caught:
        UserKey(text)
    assert str(caught.value) == reason
