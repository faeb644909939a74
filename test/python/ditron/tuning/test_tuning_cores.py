"""How many processes predict and compile."""

import pytest

from ditron.tuning.cores import processes_for


@pytest.mark.parametrize(
    "cores, tasks, expected",
    [(1, 9, 1), (2, 9, 2), (3, 9, 2), (8, 9, 6), (32, 99, 30), (192, 99, 32), (8, 3, 3), (8, 0, 0)],
)
def test_how_many_processes(cores, tasks, expected, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert processes_for(tasks) == expected
