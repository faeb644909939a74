"""Scripts in forked processes end as in processes of their own."""

import pytest
from forked import run_script

ENDS = {
    "print(__name__, __file__ == sys.argv[0], sys.argv[1:])": (0, "__main__ True ['a', 'b']\n"),
    "raise ValueError('wrong')": (1, "ValueError: wrong\n"),
    "sys.exit(3)": (3, ""),
    "sys.exit('why')": (1, "why\n"),
    "import atexit; atexit.register(print, 'behind'); print('before')": (0, "before\nbehind\n"),
    "import os; os.system('echo from a child')": (0, "from a child\n"),
    "import helper; print(helper.__name__)": (0, "helper\n"),
}


@pytest.mark.parametrize("text", ENDS)
def test_ends(text, tmp_path):
    (tmp_path / "helper.py").touch()
    (tmp_path / "script.py").write_text(f"import sys\n{text}\n")
    status, printed = run_script(tmp_path / "script.py", "a", "b", cwd=tmp_path)
    assert status == ENDS[text][0] and printed.endswith(ENDS[text][1]), printed


def test_a_script_that_does_not_end(tmp_path):
    (tmp_path / "script.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")
    with pytest.raises(TimeoutError, match="longer than 2 s:\nbegun"):
        run_script(tmp_path / "script.py", cwd=tmp_path, timeout=2)


def test_memory_of_the_server_is_not_written(tmp_path):
    """What a script does to modules that were imported before it is gone when the next begins."""
    (tmp_path / "script.py").write_text("import ditron\nassert not hasattr(ditron, 'left')\nditron.left = True\n")
    for _ in range(2):
        assert run_script(tmp_path / "script.py", cwd=tmp_path) == (0, "")
