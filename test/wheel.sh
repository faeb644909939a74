#!/bin/sh
# Installs a wheel into a clean environment outside the source tree and uses what it brought, without its dependencies.
#   test/wheel.sh PYTHON WHEEL
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") wheel=$(readlink -f "$2")
unset LD_LIBRARY_PATH PYTHONPATH
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
"$python" -m venv env
env/bin/pip install -q --no-deps --no-index "$wheel"
env/bin/python - <<'END'
import importlib.util
from pathlib import Path

import ditron_compiler
from ditron_compiler import ir, pass_registry, pipeline, runtime_library
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.ir.dialects import arith, cf, ditron, func, llvm, math, memref, scf, tt  # noqa: F401

with ir.Context(), ir.Location.unknown():
    module = ir.Module.parse("func.func @f(%p: !tt.ptr<f32>, %r: i32) -> i32 { %0 = ditron.rank return %0 : i32 }")
    PassManager.parse("builtin.module(canonicalize)").run(module)
    assert "ditron.rank" in str(module)
assert runtime_library("gpu/core.ll").is_file()
for name in pass_registry.own():
    pass_registry.load(name)
package = Path(ditron_compiler.__file__).parent.parent / "ditron"
assert list((package / "tuning" / "tables").glob("*.json"))
# The machine's module by its file: the package around it wants triton, which is not here.
file, = package.glob("_sim*.so")
spec = importlib.util.spec_from_file_location("ditron._sim", file)
importlib.util.module_from_spec(spec)
END
echo 'module {}' | env/bin/ditron-opt --pass-pipeline='builtin.module(raise-primitives)' >out
grep -q module out
size=$(stat -c %s "$wheel")
test "$size" -lt 31457280
echo "$(basename "$wheel"): $size bytes, works under $("$python" --version)"
