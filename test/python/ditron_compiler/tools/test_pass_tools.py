"""A pass author's tools: diffs, statistics, times, reproducers, passes of other packages, the language server."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import ClassVar

import paths
import pytest

from ditron.cli import main
from ditron_compiler import ir, pass_registry, pipeline
from ditron_compiler.instrumentation import Instrumentation
from ditron_compiler.ir.pass_base import InvalidOption, Pass, option
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.tools import pass_diff as passdiff
from ditron_compiler.tools import pass_docs as passdocs

ROOT = paths.ROOT
KERNEL = f"{paths.ROOT / 'test/python/support/cli_kernels.py'}:good"
TEXT = "func.func @f(%x: i32) -> i32 { %0 = arith.addi %x, %x : i32 %1 = arith.addi %x, %x : i32 return %1 : i32 }"
FAILING = '''
from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler.passes import Pass, PassFailure


@dataclass(frozen=True)
class Refuse(Pass):
    """Refuse."""

    name: ClassVar[str] = "{name}"
    why: str = "because"

    def run(self, op):
        {action}
'''


def failing(tmp_path, name, action):
    path = tmp_path / f"{name.replace('-', '_')}.py"
    path.write_text(FAILING.format(name=name, action=action))
    return path


def test_a_diff_pairs_what_is_only_renumbered():
    found = passdiff.changes("a\n%0 = x\n%1 = y\n%2 = z %1\n", "a\n%0 = y\n%1 = z %0\n")
    assert [(c.equal, c.before, c.after) for c in found] == [
        (True, ("a",), ("a",)),
        (False, ("%0 = x",), ()),
        (True, ("%1 = y", "%2 = z %1"), ("%0 = y", "%1 = z %0")),
    ]


def test_a_diff_shows_the_lines_around_a_change():
    before = "\n".join(f"line {n}" for n in range(40))
    lines = list(passdiff.terminal([("first", before, before.replace("line 20", "new")), ("second", "x", "x")], False))
    assert lines == [
        "== first: 1 line removed, 1 added",
        "  ... 17 lines ...",
        "  line 17",
        "  line 18",
        "  line 19",
        "- line 20",
        "+ new",
        "  line 21",
        "  line 22",
        "  line 23",
        "  ... 16 lines ...",
        "== second: no change",
    ]


def test_snapshots_chain_and_the_last_is_the_result():
    with ir.Context():
        module = ir.Module.parse(TEXT)
        instrumentation = Instrumentation(snapshots=True)
        pipeline.run(module, ["canonicalize", "func.func(cse)"], instrumentation)
        pairs = list(instrumentation.pairs())
        assert [name for name, _, _ in pairs] == ["canonicalize", "cse"]
        assert pairs[0][2] == pairs[1][1] and pairs[1][2].strip() == str(module).strip()
        assert pairs[0][1].count("arith.addi") == 2 and pairs[1][2].count("arith.addi") == 1


def test_dump_pass_diff(capsys):
    assert main(["dump", KERNEL, "--pass-diff", "--print-after", "lower-swizzle"]) == 0
    captured = capsys.readouterr()
    assert "== raise-primitives: " in captured.out and "\n+ " in captured.out and "\033" not in captured.out
    assert "ditron.wait %" in captured.out and 'symbol = "ditron_wait"' in captured.out
    assert captured.err.count("IR Dump After") == 1 and "lower-swizzle" in captured.err
    assert main(["dump", KERNEL, "--pass-diff", "--color", "always"]) == 0
    assert "\033[32m+ " in capsys.readouterr().out


class Outline(HTMLParser):
    """Tags that are open at the end, and what refers outside of the page."""

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.links, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            self.outside += [value] if name in ("src", "href") and not value.startswith("#") else []
            self.links += [value] if name == "href" else []
            self.ids += [f"#{value}"] if name == "id" else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_dump_html_is_one_whole_page(tmp_path, capsys):
    file = tmp_path / "page.html"
    assert main(["dump", KERNEL, "--html", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    outline = Outline()
    outline.feed(file.read_text())
    assert outline.open == [] and outline.outside == [] and outline.links == outline.ids and len(outline.ids) >= 6
    assert "&lt;" in file.read_text()
    assert main(["dump", KERNEL, "--html", str(tmp_path / "no" / "page.html")]) == 2


def test_statistics_and_times(capsys):
    assert main(["dump", KERNEL, "--stage", "lowered", "--pass-statistics", "--pass-timing"]) == 0
    err = capsys.readouterr().err
    assert "primitives raised" in err and "lower-to-nvidia" in err and "\ntotal" in err


def test_a_failing_pass_leaves_a_reproducer(tmp_path):
    pass_registry.load_file(failing(tmp_path, "test-refuse", "raise PassFailure(self.why)"))
    file = tmp_path / "failed.mlir"
    with ir.Context():
        module = ir.Module.parse(TEXT)
        with pytest.raises(ir.MLIRError, match="not today"):
            pipeline.run(module, ["cse", "test-refuse{why='not today'}"], Instrumentation(reproducer=str(file)))
    text = file.read_text()
    assert "test-refuse{why=" in text and text.count("arith.addi") == 1, "after cse, before the pass"
    again = subprocess.run(
        [
            sys.executable,
            "-m",
            "ditron_compiler.tools.opt",
            f"--load={tmp_path / 'test_refuse.py'}",
            "--run-reproducer",
            file,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode != 0 and "not today" in again.stderr


def test_a_bug_in_a_pass_leaves_one_too(tmp_path, monkeypatch):
    pass_registry.load_file(failing(tmp_path, "test-bug", "1 / 0"))
    monkeypatch.setenv("DITRON_REPRODUCER", str(tmp_path / "bug.mlir"))
    with ir.Context(), pytest.raises(ZeroDivisionError):
        pipeline.run(ir.Module.parse(TEXT), ["test-bug"])
    assert "test-bug" in (tmp_path / "bug.mlir").read_text()


def test_no_reproducer_when_all_is_well(tmp_path):
    with ir.Context():
        pipeline.run(ir.Module.parse(TEXT), ["cse"], Instrumentation(reproducer=str(tmp_path / "no.mlir")))
    assert not (tmp_path / "no.mlir").exists()


def install(tmp_path, monkeypatch, name):
    """A package with a pass, as pip leaves it."""
    failing(tmp_path, name, "self.count('runs')")
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ditron.passes]\n{name} = {name.replace('-', '_')}:Refuse\n")
    monkeypatch.syspath_prepend(tmp_path)
    pass_registry.installed.cache_clear()
    monkeypatch.setattr(pass_registry, "installed", pass_registry.installed)


@pytest.fixture(autouse=True)
def forget_installed():
    yield
    pass_registry.installed.cache_clear()


def test_a_pass_of_another_package(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, "other-pass")
    with ir.Context():
        manager = PassManager.parse("builtin.module(other-pass{why=x},cse)")
        manager.run(ir.Module.parse(TEXT))
    assert manager.statistics == [("other-pass", "runs", 1)]
    assert main(["passes"]) == 0
    assert "\nof other packages: other-pass" in capsys.readouterr().out
    assert main(["passes", "other-pass"]) == 0
    assert "why=str, default because" in capsys.readouterr().out


def test_a_broken_package_is_left_out_with_a_warning(tmp_path, monkeypatch, capsys):
    install(tmp_path, monkeypatch, "broken-pass")
    (tmp_path / "broken_pass.py").write_text("import nowhere\n")
    monkeypatch.delitem(sys.modules, "broken_pass", raising=False)
    message = r"pass 'broken-pass' of package other-package \(broken_pass:Refuse\) does not load: ModuleNotFoundError"
    with pytest.warns(UserWarning, match=f"left out: {message}"):
        assert main(["passes"]) == 0
    out = capsys.readouterr().out
    assert "merge-waits" in out and "broken-pass" not in out
    with pytest.raises(ImportError, match=message), ir.Context():
        PassManager.parse("builtin.module(broken-pass)")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for argument, status in (("--help", 0), ("--broken-pass", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "ditron_compiler.tools.opt", argument],
            input="",
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == status and re.search(message, done.stderr), done.stderr


def test_a_file_without_a_reproducer(tmp_path):
    file = tmp_path / "plain.mlir"
    file.write_text(TEXT)
    done = subprocess.run(
        [sys.executable, "-m", "ditron_compiler.tools.opt", "--run-reproducer", file, "-o", "-"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search("ditron-opt: .*plain.mlir has no reproducer in it", done.stderr)


def test_a_pass_that_there_is_none_of():
    with ir.Context(), pytest.raises(ValueError, match="there is no pass 'merge-wait'; did you mean 'merge-waits'?"):
        pipeline.run(ir.Module.parse(TEXT), ["cse", "merge-wait", "lower-swizzle{one-node=true}"])
    with pytest.raises(LookupError, match="; did you mean 'merge-waits'"):
        pass_registry.load("merge-wait")


@dataclass(frozen=True)
class Choosy(Pass):
    """A pass with options."""

    name: ClassVar[str] = "test-choosy"
    how: str = option("well", "how it is done", one_of=("well", "badly"))
    many: int = option(1, "how many", least=1)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"how": "so"}, "option 'how' of 'test-choosy': expected well or badly, got 'so'"),
        ({"many": 0}, "option 'many' of 'test-choosy': expected 1 or more, got 0: how many"),
        ({"many": "2"}, "option 'many' of 'test-choosy': expected an integer, got '2'"),
    ],
)
def test_options_that_make_no_sense(given, message):
    with pytest.raises(InvalidOption, match=message):
        Choosy(**given)
    assert Choosy(how="badly", many=3).many == 3


def test_another_package_cannot_take_a_name_of_ours(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "lower-swizzle")
    with pytest.raises(ImportError, match="two packages have a pass 'lower-swizzle'"):
        pass_registry.installed()


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("none.py", "x = 1\n", "defines no pass"),
        ("no.txt", "", "no.txt"),
        ("bad.py", "def f(:\n", "bad.py:1: SyntaxError"),
        ("broken.py", "import nowhere\n", "ModuleNotFoundError: No module named 'nowhere'"),
        (
            "taken.py",
            FAILING.format(name="merge-waits", action="pass"),
            "is named 'merge-waits', as one of DITRON's own passes",
        ),
    ],
)
def test_load_says_what_is_wrong_with_a_file(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "ditron_compiler.tools.opt", f"--load={tmp_path / name}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and expected in done.stderr


def test_passes_are_listed_and_shown(capsys):
    assert main(["passes"]) == 0
    assert set(pass_registry.own()) <= set(capsys.readouterr().out.split())
    assert main(["passes", "lower-to-nvidia"]) == 0
    assert "transport=str" in capsys.readouterr().out
    assert main(["passes", "nope"]) == 2
    assert "no Python pass 'nope'; there are" in capsys.readouterr().err


def test_the_page_of_passes_is_not_stale():
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate_passes.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for name in pass_registry.own():
        assert f"\n### {name}\n" in passdocs.markdown()


def message(**content):
    body = json.dumps({"jsonrpc": "2.0", **content})
    return f"Content-Length: {len(body)}\r\n\r\n{body}"


def test_the_language_server_knows_our_dialect():
    text = "func.func @f() {\n  ditron.fence\n  ditron.fance\n  return\n}\n"
    document = {"uri": "file:///a.mlir", "languageId": "mlir", "version": 1, "text": text}
    asked = [
        message(id=0, method="initialize", params={"capabilities": {}, "processId": None, "rootUri": None}),
        message(method="textDocument/didOpen", params={"textDocument": document}),
        message(id=1, method="shutdown"),
        message(method="exit"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ditron_compiler.tools.lsp"],
        input="".join(asked),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "ditron.fance" in done.stdout and "publishDiagnostics" in done.stdout
    assert '"line":2' in done.stdout
