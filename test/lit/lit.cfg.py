"""lit's configuration: the tools of this source tree or of the installed package, and %python."""

import os
import sys
from pathlib import Path

import lit.formats

config.name = "DITRON"
config.suffixes = [".mlir", ".py", ".test"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_format = lit.formats.ShTest()
config.test_source_root = os.path.dirname(__file__)
root = Path(config.test_source_root).resolve().parents[1]
config.test_exec_root = str(root / "build" / "lit")

# The tools run as modules of this interpreter, on this tree: no installed script can stand in for them.
python = sys.executable
config.substitutions += [
    ("%python", python),
    ("%root", str(root)),
    (r"\bditron-opt\b", f"{python} -m ditron_compiler.tools.opt"),
    (r"\bditron\b(?=\s+(?:dump|run|doctor|opt|--))", f"{python} -m ditron.cli"),
    (r"\bfilecheck\b", f"{sys.executable} -m filecheck --comment-prefixes=COM,RUN --enable-var-scope"),
]
config.environment["PYTHONPATH"] = str(root)
for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
