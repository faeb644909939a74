"""The documentation's code runs: every python block as a script of its own, every ditron command in its sh blocks."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import paths
import pytest
from forked import run_script

ROOT = paths.ROOT
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ((?:Inputs/)?\w+\.py)\n")
BIN = Path(sys.executable).parent


def blocks(language: str) -> list:
    found = []
    for page in PAGES:
        for match in FENCE.finditer(page.read_text()):
            if match[1] == language:
                line = page.read_text()[: match.start()].count("\n") + 2
                found.append(pytest.param(match[2], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


def commands() -> list:
    found = []
    for param in blocks("sh"):
        for line in param.values[0].splitlines():
            line = line.split("  #")[0].strip()
            if line.startswith(("ditron ", "ditron-opt ")):
                found.append(pytest.param(line, id=line))
    return found


@pytest.mark.parametrize("script", blocks("python"))
def test_python_block_runs(script, tmp_path):
    for param in blocks("python"):  # a block that begins with the name of its file may use the others that do
        if named := NAMED.match(param.values[0]):
            (tmp_path / named[1]).parent.mkdir(exist_ok=True)
            (tmp_path / named[1]).write_text(param.values[0])
    path = tmp_path / (named[1] if (named := NAMED.match(script)) else "block.py")
    path.write_text(script)
    status, printed = run_script(path, cwd=tmp_path)
    assert status == 0, printed


def test_the_first_kernel_is_checked_clean(tmp_path):
    """What a newcomer copies first, on groups of one node, since it says that it is for one."""
    first = FENCE.search(
        (ROOT / "README.md").read_text()[(ROOT / "README.md").read_text().index("## A first kernel") :]
    )
    path = tmp_path / "first.py"
    path.write_text(first[2])
    done = subprocess.run([BIN / "ditron", "check", path], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "first.py: no findings (1 rank, 2 ranks, 3 ranks, 4 ranks)\n"), done


@pytest.mark.parametrize("command", commands())
def test_command_runs(command):
    words = shlex.split(command)
    status, printed = run_script(BIN / words[0], *words[1:], cwd=ROOT)
    assert status == 0, printed


def test_there_are_blocks():
    """A pattern that matches nothing would pass everything."""
    assert blocks("python") and commands()


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_links_lead_somewhere(page):
    prose = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
