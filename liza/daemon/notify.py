"""Sends alerts to people: each alarm once, through alerts.log, to their command, webhook and other channels.

alerts.log is the queue: workers and commands append to it, and the one supervisor sends what is new. The
offset of what was sent is stored beside it, so that a restart neither repeats nor loses an alert. Sending has
its own thread, so that a slow receiver blocks nobody.

A package adds a channel as an entry point of the group `liza.notify` that is a `Channel`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from liza.daemon.breaker import REPORTS
from liza.daemon.policy import progress
from liza.domain.config import Notify
from liza.domain.model import Remedy, Status
from liza.domain.problems import violations_from
from liza.domain.record import NonEmptyStr, Record, utc_now
from liza.domain.report_words import duration_text
from liza.domain.rules import report_name, resolve_command, trip_sentence
from liza.domain.waits import human_waits
from liza.errors import DiskTrouble, UsageError
from liza.system.files import overwrite
from liza.system.plugins import Registry
from liza.workflow.document import remind_minutes, workflow_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from liza.board.protocol import Alert, Board
    from liza.domain.model import State, Task, Trip
    from liza.domain.waits import HumanWait

FOLDER: Final = "told"
SIGNATURE: Final = "X-Liza-Signature"
MOST_REMEMBERED: Final = 2000  # alarms; the oldest is forgotten first
MOST_WAITING: Final = 100  # alerts that are sent late; of a longer backlog only the latest are
RETRIES: Final = (1.0, 2.0, 4.0)  # seconds before the second, third and fourth try
PATIENCE: Final = 10.0  # seconds a command or a webhook may take
DRAIN: Final = 3.0  # seconds that the end of a run waits for what is not sent yet
UNSENT: Final = "not told: "  # how a line starts that says so, which is itself not sent
# The exit code comes through a pipe: the supervisor reaps every child, and may be first.
_SHELL: Final = ("sh", "-c", '"$@" >/dev/null 2>&1; echo $?', "sh")


# The crash itself, and the edit itself, are told by whoever saw it, with more to say.
_REPORTED_ELSEWHERE: Final = frozenset({"crash_loop", "rejected_edit", "gate_broken"})


class Alarm(NamedTuple):
    key: str
    says: str
    stands: bool = False  # somebody is waited for, so whoever starts the next run hears of it as well


def alarms(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield every alarm that the board gives reason for; its key names one occurrence."""
    yield from _wait_alarms(state, now)
    yield from (
        _trip_alarm(trip) for trip in state.circuit_breaker.trips if trip.rule not in _REPORTED_ELSEWHERE
    )
    if state.sprint.retrospective is not None:
        where = state.sprint.retrospective
        yield Alarm(f"sprint {state.sprint.number}", f"sprint {state.sprint.number} is over; see {where}")


def _wait_alarms(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each thing that waits for people; open trips have alarms of their own."""
    only = [wait for wait in progress.only_people(state, now) if not _is_trip(state, wait)]
    yield from (
        Alarm(_wait_key(wait), f"only people can make progress: {wait}", stands=True) for wait in only
    )
    yield from _reminders(state, now)
    theirs = {task.id for task in state.tasks.values() if _needs_person(task)}
    for wait in human_waits(state):
        if wait not in only and wait.what.partition(" ")[0] in theirs:
            yield Alarm(_wait_key(wait), f"a person is needed: {wait}", stands=True)


def _reminders(state: State, now: datetime) -> Iterator[Alarm]:
    """Yield an alarm for each interval that a person is waited for, where the gate says how long one is."""
    for wait in human_waits(state):
        task = state.tasks.get(wait.what.partition(" ")[0])
        minutes = remind_minutes(workflow_on(state), task.position) if task and task.position else None
        if minutes is None or not wait.since:
            continue
        waited = now - datetime.fromisoformat(wait.since)
        if number := int(waited / timedelta(minutes=minutes)):
            told = f"a person is still needed, after {duration_text(waited)}: {wait}"
            yield Alarm(f"{_wait_key(wait)} reminder {number}", told)


def _wait_key(wait: HumanWait) -> str:
    return f"waits {wait.what} {wait.since}"


def _is_trip(state: State, wait: HumanWait) -> bool:
    return any(wait.since == trip.id for trip in state.circuit_breaker.trips)


def _needs_person(task: Task) -> bool:
    if task.status is Status.BLOCKED:
        return task.asked is not None  # before that, the planner thinks about it
    return task.status is Status.AWAITING_APPROVAL or (task.status is Status.APPROVED and task.is_tainted)


def _trip_alarm(trip: Trip) -> Alarm:
    is_open = trip.resolved_at is None
    last = f" ({trip.says[-1]})" if trip.action is Remedy.ALERT and trip.says else ""
    then = f" (`{resolve_command(trip)}`)" if is_open else ""
    says = f"{trip_sentence(trip)}{last}; see {REPORTS}/{report_name(trip)}{then}"
    return Alarm(f"trip {trip.id}", says, stands=is_open)


class SentAlarms:
    """The alarms that were sent, also by earlier supervisors."""

    def __init__(self, home: Path) -> None:
        self._path = home / FOLDER / "alarms.json"
        self._keys = self._read()

    def _read(self) -> dict[str, None]:
        try:
            return dict.fromkeys(map(str, json.loads(self._path.read_text())))
        except (OSError, ValueError, TypeError):  # none yet, or a wreck: better told twice than never
            return {}

    def is_news(self, alarm: Alarm) -> bool:
        return _digest(alarm.key) not in self._keys

    def remember(self, alarm: Alarm) -> None:
        self._keys[_digest(alarm.key)] = None
        kept = list(self._keys)[-MOST_REMEMBERED:]
        self._keys = dict.fromkeys(kept)
        with suppress(OSError):  # a full disk may be what the alarm is about
            _write_atomically(self._path, json.dumps(kept))


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    overwrite(path, text)


class Message(NamedTuple):
    """One line of alerts.log on its way."""

    at: str
    alert: str
    project: str

    def body(self) -> bytes:
        return json.dumps(self._asdict(), ensure_ascii=False).encode()


class Channel(NamedTuple):
    """A row: what the channel may be told, who sends, and how the channel is called where it fails."""

    options: type[Record]
    send: Callable[[Any, Message, float], str | None]  # options, message, seconds; what went wrong
    name_of: Callable[[Any], str] | None = None
    is_tried_again: bool = True


class ByCommand(Record):
    command: tuple[NonEmptyStr, ...]
    cwd: Path


class ByWebhook(Record):
    url: NonEmptyStr
    secret_env: NonEmptyStr


def _send_by_command(options: ByCommand, message: Message, patience: float) -> str | None:
    return run_command(options.command, message, options.cwd, patience)


def _send_by_webhook(options: ByWebhook, message: Message, patience: float) -> str | None:
    return post_webhook(options.url, os.environ.get(options.secret_env), message, patience)


def _host_of(options: ByWebhook) -> str:
    # Only the host: the rest of an address is often the secret.
    return urlsplit(options.url).hostname or "the webhook"


CHANNELS: Final[Registry[Channel]] = Registry(
    "liza.notify",
    "notification channel",
    {
        "command": Channel(
            ByCommand, _send_by_command, lambda options: options.command[0], is_tried_again=False
        ),
        "webhook": Channel(ByWebhook, _send_by_webhook, _host_of, is_tried_again=True),
    },
    Channel,
)


def require_channels(notify: Notify) -> None:
    """Raise one sentence where *notify* names a channel that nobody has, or tells it something unknown."""
    for name, options in notify.channels.items():
        if name not in CHANNELS:
            raise UsageError(f"notify.channels.{name}: {CHANNELS.unknown(name)}")
        _validate_channel(name, options)


def _validate_channel(name: str, options: Mapping[str, Any]) -> Record:
    record = CHANNELS[name].options
    try:
        return record.model_validate(dict(options))
    except ValidationError as error:
        raise UsageError(str(violations_from(error, record, f"notify.channels.{name}", {})[0])) from error


class Notifier:
    """Sends the lines of alerts.log, one after the other."""

    def __init__(
        self, board: Board, *, retries: tuple[float, ...] = RETRIES, patience: float = PATIENCE
    ) -> None:
        self._alerts = board.alerts
        self._root = board.home.parent
        self._retries = retries
        self._patience = patience
        self._notify = Notify()
        self._news = threading.Event()
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._work, name="notifier", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nudge(self, notify: Notify) -> None:
        """Wake the sender if there is something to send, with the settings of now; return at once."""
        self._notify = notify
        if self._alerts.end() != self._alerts.sent():
            self._news.set()

    def close(self, patience: float = DRAIN) -> None:
        """End, after what is waiting was sent or *patience* seconds have passed; the rest is for the next."""
        self._deadline = time.monotonic() + patience
        self._closing.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(patience + 1.0)

    def _work(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            is_closing = self._closing.is_set()  # asked before, so that all that came until then is sent
            with suppress(DiskTrouble):  # a full disk: at the next alert
                self._send_on()
            if is_closing:
                return

    def _send_on(self) -> None:
        waiting = self._alerts.after(self._alerts.sent())
        if (dropped := len(waiting) - MOST_WAITING) > 0:
            self._log_failure(f"{dropped} alerts that are too many to send; see alerts.log")
        for alert in waiting[-MOST_WAITING:]:
            if self._is_late() or not self._deliver(alert):
                return
            self._alerts.mark_sent(alert.position)

    def _deliver(self, alert: Alert) -> bool:
        """Send one alert; return whether it was sent or given up, False where the shutdown cut it short."""
        if not alert.says or alert.says.startswith(UNSENT):
            return True
        message = Message(alert.at, alert.says, self._root.name)
        sent = (self._send(name, options, message) for name, options in self._named_channels(self._notify))
        whys = [why for why in sent if why]
        if whys and self._is_late():
            return False
        for why in whys:
            self._log_failure(f"{why}: {alert.says}")
        return True

    def _named_channels(self, notify: Notify) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the channels that *notify* names, with their options."""
        if notify.command:
            yield "command", {"command": notify.command, "cwd": self._root}
        if notify.webhook:
            yield "webhook", {"url": notify.webhook, "secret_env": notify.secret_env}
        yield from notify.channels.items()

    def _send(self, name: str, options: Mapping[str, Any], message: Message) -> str | None:
        """Send through the channel *name*, again where it may be; return what went wrong, with its name."""
        try:
            channel, told = CHANNELS[name], _validate_channel(name, options)
            why = channel.send(told, message, self._patience)
            for delay in self._retries if channel.is_tried_again else ():
                if why is None or not self._wait_before_retry(delay):
                    break
                why = channel.send(told, message, self._patience)
        except Exception as error:  # noqa: BLE001 - a package's own; whatever it raises, the next alert has to be sent
            return f"{name} failed ({error})"
        said = channel.name_of(told) if channel.name_of else name
        return f"{said} {why}" if why else None

    def _wait_before_retry(self, delay: float) -> bool:
        """Wait before a retry; return whether there is time for one."""
        began = time.monotonic()
        while (left := delay - (time.monotonic() - began)) > 0:
            if self._is_late(left):
                return False
            # Who closes sets a deadline: then the wait is looked at anew.
            if self._closing.is_set():
                time.sleep(left)
            else:
                self._closing.wait(left)
        return True

    def _is_late(self, more: float = 0.0) -> bool:
        return time.monotonic() + more > self._deadline

    def _log_failure(self, what: str) -> None:
        with suppress(DiskTrouble):
            self._alerts.append(f"{UNSENT}{what}", at=utc_now())


def run_command(command: tuple[str, ...], message: Message, cwd: Path, patience: float) -> str | None:
    """Run *command* with the message as last word, and as JSON on stdin; return what went wrong."""
    try:
        process = subprocess.Popen(
            [*_SHELL, *command, message.alert],
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
    except OSError as error:
        return f"could not be started ({error.strerror})"
    try:
        said, _ = process.communicate(message.body(), timeout=patience)
    except subprocess.TimeoutExpired:
        _kill_command(process)
        return f"took longer than {patience:g} seconds and was ended"
    code = said.decode(errors="replace").strip()
    return None if code == "0" else f"ended with exit code {code or 'unknown'}"


def _kill_command(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):  # what it did not read
            pipe.close()
    process.wait()


def post_webhook(url: str, secret: str | None, message: Message, patience: float) -> str | None:
    """Send the message to *url* as JSON, signed where there is a secret; return what went wrong."""
    if not url.startswith(("http://", "https://")):
        return "is not an http or https address"
    body = message.body()
    headers = {"Content-Type": "application/json"}
    if secret:
        headers[SIGNATURE] = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    return _post(url, body, headers, patience)


def _post(url: str, body: bytes, headers: dict[str, str], patience: float) -> str | None:
    import urllib.error  # noqa: PLC0415 - every run loads this module, and few send anything
    import urllib.request  # noqa: PLC0415 - as above
    from http.client import HTTPException  # noqa: PLC0415 - as above

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """A message is signed for whom it is sent to; nobody else gets it."""

        def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - as the library calls it
            return None

    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - the caller checks
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=patience):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        return f"answered {error.code}"
    except (OSError, ValueError, HTTPException) as error:
        return f"could not be reached ({error})"
