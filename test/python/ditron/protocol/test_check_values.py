"""What a script reads of what its kernels compute, which nothing computes while it is checked."""

from __future__ import annotations

import pytest

from ditron.cli import main as command
from ditron.protocol.api import check_script

SCRIPT = """
import sys, torch, triton.language as tl
import ditron, ditron.language as dl

@ditron.jit
def count(x, n, N: tl.constexpr):
    tl.store(n, tl.sum((tl.load(x + tl.arange(0, N)) > 0).to(tl.int32)))

@ditron.jit
def wait_in_vain(flag):
    dl.wait(flag, 1, 1)

def half(number):
    return number // 2

def main():
    ditron.init(sim=2)
    x, n, sums = torch.ones(64), torch.zeros(1, dtype=torch.int32), []
    flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
    count[(1,)](x, n, N=64)
    {body}

main()
"""
LAUNCH = "wait_in_vain[(1,)](flag)"

DECIDES = {
    "grid": "rows = int(n.item())\n    if rows: wait_in_vain[(rows,)](flag)",
    "branch": f"if n > 0: {LAUNCH}",
    "other result": f"m = n.clone() * 2; found = (m > 0).any().item()\n    if found: {LAUNCH}",
    "list": f"for _ in range(n.tolist()[0]): {LAUNCH}",
    "numpy": f"if n.numpy()[0]: {LAUNCH}",
    "shape": f"for row in n.nonzero(): {LAUNCH}",
    "helper": f"if half(int(n)): {LAUNCH}",
    "early return": f"if not torch.equal(n, n + 1): return\n    {LAUNCH}",
    "early exit": f"if n.item() == 0: sys.exit(1)\n    {LAUNCH}",
    "poll": f"while n.item() < 1: pass\n    {LAUNCH}",
}
DECIDES_NOTHING = {
    "printed": "print(n.item(), n.tolist(), n)",
    "kept": "sums.append(n.item())\n    print(max(sums))",
    "compared": "if n.item() != 64: print('wrong')",
    "raised at the end": "if n.item() == 65: raise ValueError('wrong')",
    "input": "if x[0].item() > 2: wait_in_vain[(1,)](flag)",
    "overwritten": "n.fill_(0)\n    if n.item(): wait_in_vain[(1,)](flag)",
}


def check(tmp_path, body, **given):
    file = tmp_path / "reads.py"
    file.write_text(SCRIPT.format(body=body))
    return file, check_script(file, groups=[(2, None)], **given)


@pytest.mark.parametrize("how", DECIDES)
def test_a_value_that_decides_what_is_launched_has_a_note(tmp_path, how):
    file, report = check(tmp_path, DECIDES[how])
    assert not report.findings and report.not_followed, str(report)
    assert report.not_followed[0].startswith(f"{file}:21: the script ") and not report.is_complete, str(report)


@pytest.mark.parametrize("how", DECIDES_NOTHING)
def test_a_value_that_decides_nothing_has_none(tmp_path, how):
    _, report = check(tmp_path, DECIDES_NOTHING[how])
    assert not report.findings and report.is_complete, str(report)


@pytest.mark.parametrize("how", ["grid", "branch", "helper"])
def test_a_value_can_be_given(tmp_path, how, capsys):
    file, report = check(tmp_path, DECIDES[how], values={21: 2})
    assert [finding.kind for finding in report.findings] == ["never-signalled"] and not report.notes, str(report)
    assert command(["check", "--ranks", "2", str(file)]) == 3
    assert "Give a value: ditron check --value 21=VALUE" in capsys.readouterr().out
    assert command(["check", "--ranks", "2", "--value", "21=2", str(file)]) == 1
    assert command(["check", "--ranks", "2", "--value", "21", str(file)]) == 2
    assert "expected LINE=VALUE" in capsys.readouterr().err
