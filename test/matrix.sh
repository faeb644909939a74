#!/usr/bin/env bash
# Compile all examples for both vendors under several Tritons: test/matrix.sh 3.6.0 3.9.0
# Each Triton gets a directory of its own that comes first on the path; everything else is the development environment.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
for version in "$@"; do
  site=$PWD/.venv-matrix/triton-$version
  if [ ! -d "$site/triton" ]; then
    echo "== installing triton $version"
    "$bin/pip" install -q --no-deps --no-compile --target "$site" "triton==$version"
  fi
  PYTHONPATH=$site "$bin/python" test/matrix.py --expect "$version"
done
