"""What `make build` needs to know from pyproject.toml, so that it is written there only.

    develop.py requirements    print what development needs: to build, to run, to test
    develop.py requirements X  print what the extra X of pyproject.toml needs
    develop.py link            let this interpreter's environment import the source tree and run its console scripts

`pip install -e .` would do the same, but runs CMake's configure step on each change; here ninja alone is asked.
"""

import stat
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

SCRIPT = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


def requirements(extra: str = "") -> None:
    project = PYPROJECT["project"]
    if extra:
        print(*project["optional-dependencies"][extra], sep="\n")
        return
    print(
        *PYPROJECT["build-system"]["requires"],
        *project["dependencies"],
        *project["optional-dependencies"]["test"],
        sep="\n",
    )


def link() -> None:
    Path(sysconfig.get_path("purelib"), "ditron-source-tree.pth").write_text(f"{ROOT}\n")
    for name, target in PYPROJECT["project"]["scripts"].items():
        module, function = target.split(":")
        path = Path(sysconfig.get_path("scripts"), name)
        path.write_text(SCRIPT.format(python=sys.executable, module=module, function=function))
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


if __name__ == "__main__":
    {"requirements": requirements, "link": link}[sys.argv[1]](*sys.argv[2:])
