"""The demo's live table: a row a class, and what judges it."""

import io

from rich.console import Console

from cli.demo_view import class_table
from schemas.messages import ClassState, Latency
from tests.support.builders import BATCH, CRITICAL, DEFAULT, batch_state, class_state, latency, state, waiting


def rows(classes):
    """The table's cells by class, as shown on a wide terminal."""
    console = Console(file=io.StringIO(), width=160)
    console.print(class_table(state(classes=classes)))
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    return {name: others for name, *others in cells}


def test_each_class_shows_what_judges_it():
    shown = rows(
        {
            CRITICAL: waiting(0.4, 0.1, cpu_cores=0.5, share=0.25, weight=1000),
            DEFAULT: class_state(latency=latency(0.0213, over_ratio=0.004), waited_ratio=0.02, weight=316),
            BATCH: batch_state(),
        }
    )
    assert shown == {
        CRITICAL: ["wait ≤ 10 %", "", "-", "40.0 %", "0.50 cores", "25.0 %", "1000"],
        DEFAULT: ["P99 ≤ 100 ms", "21 ms", "0.4 %", "2.0 %", "0.80 cores", "90.0 %", "316"],
        BATCH: ["", "", "-", "-", "1.00 cores", "10.0 %", "100"],
    }


def test_a_lower_bound_is_marked_and_a_class_without_pods_shows_nothing():
    bound = Latency(p99_seconds=10.0, saturated=("p99",))
    absent = ClassState(objective_seconds=0.5, objective_pressure_ratio=0.3)
    shown = rows({CRITICAL: class_state(latency=bound), DEFAULT: absent})
    assert shown[CRITICAL][1] == ">10,000 ms"
    assert shown[DEFAULT] == ["", "", "-", "-", "", "-", ""]


def test_before_the_first_state_the_table_has_no_rows():
    assert class_table(None).row_count == 0
