import pytest

from runtime.errors import ConfigError
from runtime.flags import FlagParser, add_config_flags, overrides_of


def parsed(*argv: str):
    parser = FlagParser(prog="trimtab")
    add_config_flags(parser)
    return parser.parse_args(argv)


def test_flags_become_overrides_that_know_their_flag():
    args = parsed("--node", "n1", "--mode", "active", "--nats-url", "u", "--log-level", "debug", "--set", "a.b=c=d")
    assert overrides_of(args) == [
        ("a.b", "c=d", "--set"),
        ("node", "n1", "--node"),
        ("mode", "active", "--mode"),
        ("bus.url", "u", "--nats-url"),
        ("log.level", "debug", "--log-level"),
    ]


def test_without_flags_there_is_nothing_to_override():
    assert overrides_of(parsed()) == []


def test_a_set_flag_may_set_nothing_to_the_empty_text():
    assert overrides_of(parsed("--set", "a.b=")) == [("a.b", "", "--set")]


@pytest.mark.parametrize("text", ["a.b", "=c", "", "a\nb"])
def test_a_set_flag_that_assigns_nothing_is_one_line(text):
    with pytest.raises(ConfigError, match=r"write --set section\.field=value") as caught:
        overrides_of(parsed("--set", text))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("argv", [["--mode", "x"], ["--nod", "n"], ["--set"], ["extra"], ["two\nlines"]])
def test_a_wrong_flag_is_one_line_that_says_where_to_read_on(argv):
    with pytest.raises(ConfigError, match=r"; see trimtab --help$") as caught:
        parsed(*argv)
    assert len(str(caught.value).splitlines()) == 1


def test_the_file_can_be_named_by_the_environment(monkeypatch):
    monkeypatch.setenv("TRIMTAB_CONFIG", "/etc/trimtab.yaml")
    assert parsed().config == "/etc/trimtab.yaml"
    assert parsed("--config", "other.yaml").config == "other.yaml"
