"""Write docs/passes.md from what the passes say of themselves, or say whether it is stale.

python docs/generate_passes.py           writes the page
python docs/generate_passes.py --check   exits 1 when the page is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ditron_compiler.tools import pass_docs as passdocs

PAGE = Path(__file__).resolve().parent / "passes.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 when the page is stale")
    text = passdocs.markdown()
    if not parser.parse_args().check:
        PAGE.write_text(text)
        return 0
    if PAGE.is_file() and PAGE.read_text() == text:
        return 0
    print(f"{PAGE.name} is stale: run python docs/generate_passes.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
