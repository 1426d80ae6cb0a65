"""`python -m liza.cli.pre_receive BOARD` is `liza hook pre-receive BOARD`, and starts sooner.

Git waits for it with each push.
"""

from __future__ import annotations

import sys

from liza.cli.process import configure_logging, exit_code_of, prepare_process


def main() -> None:
    """Judge the push that git describes on stdin."""
    prepare_process()
    configure_logging("hook")
    sys.exit(exit_code_of(_check_push))


def _check_push() -> None:
    from liza.daemon.push_hook import check_push  # noqa: PLC0415 - after the process is prepared

    check_push(sys.argv[1], sys.stdin)


if __name__ == "__main__":
    main()
