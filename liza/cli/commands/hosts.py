"""Many machines: what one of them does for a board that they share."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from contextlib import ExitStack

from liza.cli.registry import LABELS, NO_BASELINE, argument, command, home_of


@command("host", "work on a board on a server, together with other machines",
         argument("--board", metavar="ADDRESS", help="where the board is (as LIZA_BOARD or liza.yaml say)"),
         argument("--name", metavar="N", help="what this machine is called (as it calls itself)"),
         argument("--slots", metavar="ROLE=N,…", help="how many workers it offers (as the settings say)"),
         LABELS,
         argument("--once", action="store_true", help="end with 0 when nothing here is to be done now"),
         argument("--stay", action="store_true", help="wait for another goal when this one is complete"),
         argument("--metrics", metavar="[HOST:]PORT", help="show Prometheus the board there (on 127.0.0.1)"),
         NO_BASELINE)  # fmt: skip
def _host(args: Namespace) -> int | None:
    from liza.board.location import VARIABLE
    from liza.cli.commands.runs import forked_worker, settle_process, write_reports
    from liza.cli.views.screen import DetachedView
    from liza.daemon.joining import check_host, host_facts, own_name, parse_labels, parse_name, parse_slots
    from liza.daemon.policy.staffing import HostOffer
    from liza.daemon.reports.prometheus import parse_endpoint, serve_metrics
    from liza.daemon.supervisor import Until, supervise
    from liza.errors import UsageError

    if args.once and args.stay:
        raise UsageError("--once ends when there is nothing to do, and --stay never does; give one of them")
    slots = parse_slots(args.slots) if args.slots is not None else None
    offer = HostOffer(parse_name(args.name or own_name()), slots, parse_labels(args.label))
    endpoint = parse_endpoint(args.metrics) if args.metrics is not None else None
    if args.board is not None:
        os.environ[VARIABLE] = args.board  # of this process and its workers; agents never see it
    settle_process()
    home = home_of(args)
    for warning in check_host(home, str(offer.name)):
        print(f"liza: {warning}", file=sys.stderr)
    with ExitStack() as stack:

        def begin() -> None:
            # Not before workers can be forked: a fork must not copy its thread and its connection.
            if endpoint:
                print(f"Metrics are at {stack.enter_context(serve_metrics(home, endpoint))}", flush=True)
            print(f"{offer.name} joins the board.", flush=True)

        return supervise(
            home,
            DetachedView(sys.stdout),
            until=Until.NOTHING_HERE if args.once else Until.STOPPED if args.stay else Until.COMPLETE,
            offer=offer,
            facts=host_facts(),
            be_worker=forked_worker(home),
            ready=begin,
            baseline=args.baseline,
            report=write_reports,
        )
