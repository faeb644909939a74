"""Print what each pipeline makes of an example's kernel: dump.py EXAMPLE:KERNEL PIPELINE..."""

import sys
from pathlib import Path

import ditron
from ditron.cli.kernels import load_kernel

kernel = load_kernel(str(Path(__file__).resolve().parents[4] / "examples" / sys.argv[1]))
for name in sys.argv[2:]:
    print("// pipeline", name)
    try:
        print(ditron.compile(kernel, target="cuda:90", pipeline=name, stop_after="ditron").asm["ditron"])
    except ditron.CompileError as error:
        print(error)
