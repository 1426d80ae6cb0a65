"""What every test process inherits: a place for bytecode, since the tests start hundreds of interpreters."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile

if sys.dont_write_bytecode:
    # Whoever wants no bytecode in the tree gets none; yet a worker that compiles all of Liza anew, each time
    # that one is started, takes twice as long.
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="liza-bytecode-")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)
