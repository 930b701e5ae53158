"""What integration tests found out is said at the end of the run: a test records it as the property `figure`."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each figure."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for figure in [text for report in reports for name, text in report.user_properties if name == "figure"]:
        terminalreporter.write_line(str(figure))
