"""What `trimtab record` says while it works."""

import io

from cli.record import _Progress
from lab.record.recorder import Tally


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def shown(is_terminal: bool, *times: float) -> str:
    screen = Screen(is_terminal=is_terminal)
    clock = iter([0.0, *times])
    progress = _Progress(screen, lambda: next(clock))
    for number, _ in enumerate(times):
        progress.show(Tally(messages=1000 * number, cycles=number, left=9 - number, gaps=number // 2))
    progress.close()
    return screen.getvalue()


def test_a_terminal_has_one_line_that_renews_itself():
    assert shown(True, 0.1, 0.3, 0.4, 0.6) == (
        "\rtrimtab record: 1000 messages of 1 cycles, 8 to come"
        "\rtrimtab record: 3000 messages of 3 cycles, 6 to come, 1 gaps\n"
    )


def test_a_log_has_a_line_every_few_seconds():
    assert shown(False, 1.0, 5.5, 6.0, 11.0) == (
        "trimtab record: 1000 messages of 1 cycles, 8 to come\n"
        "trimtab record: 3000 messages of 3 cycles, 6 to come, 1 gaps\n"
    )


def test_what_is_said_has_a_line_of_its_own_and_nothing_that_a_terminal_would_obey():
    screen = Screen(is_terminal=True)
    progress = _Progress(screen, iter([0.0, 1.0]).__next__)
    progress.show(Tally())
    progress.say("lost \x1b[2J it")
    assert screen.getvalue().splitlines()[-1] == "trimtab record: lost ?[2J it"
    assert screen.getvalue().count("\n") == 2


def test_settings_that_are_not_known_are_warned_of_once_each():
    screen = Screen(is_terminal=False)
    progress = _Progress(screen, iter([0.0, 1.0, 2.0, 3.0]).__next__)
    tally = Tally()
    progress.show(tally)
    assert screen.getvalue() == ""
    tally.unknown_settings.update({("decider", "d2"): 1})
    progress.show(tally)
    tally.unknown_settings.update({("decider", "d2"): 1, ("guard", "g2"): 1})
    progress.warn(tally)
    lines = screen.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "trimtab record: the decider runs with settings d2",
        "trimtab record: the guard runs with settings g2",
    ]
    assert "replay" in lines[0]
