#!/bin/sh
# Check a board: liza-validate.sh [PATH to a state.yaml or a .liza directory]
# Exit 0 if it is valid, 5 with every reason if it is not.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
if [ -x "$here/.venv/bin/liza" ]; then
    exec "$here/.venv/bin/liza" validate "$@"
fi
exec liza validate "$@"
