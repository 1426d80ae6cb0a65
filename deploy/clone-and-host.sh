#!/bin/sh
# Clone the repository that LIZA_CLONE names, where there is none yet, and be a host in it.
set -eu
: "${LIZA_BOARD:?set it to the address of the board, as postgresql://host/database#board}"
: "${LIZA_CLONE:?set it to the address of the repository that the board is for}"
[ -d work/.git ] || git clone --quiet "$LIZA_CLONE" work
cd work
exec liza host "$@"
