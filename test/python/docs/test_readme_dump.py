"""The README's excerpt of `ditron dump` is what the command prints."""

import re
import shlex

import paths

from ditron.cli import main


def test_the_dump_is_as_shown(capsys, monkeypatch):
    section = (paths.ROOT / "README.md").read_text().split("## From kernel to machine")[1].split("\n## ")[0]
    command, *shown = re.search(r"^```mlir\n// ditron (.*?)^```$", section, re.MULTILINE | re.DOTALL)[1].splitlines()
    shown = [line for line in shown if line.strip() != "..."]
    assert len(shown) >= 8
    monkeypatch.chdir(paths.ROOT)
    assert main(shlex.split(command)) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    for line in shown:
        pattern = ".*".join(re.escape(part) for part in line.split("..."))
        # The iterator goes on from the line before: the order counts.
        assert any(re.fullmatch(pattern, found) for found in printed), f"not printed here: {line}"
