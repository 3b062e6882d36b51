"""R20: two versions side by side on one store, then its format is raised, and the new one goes on alone."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

import holdfast
from holdfast.retry import Fixed
from holdfast.stores.formats import Format
from tests.servers import nats, postgres, s3

from ..child import QUEUE
from ..fleet import Member, until
from ..history import Acknowledged, Claimed, Event, Settled, read_folder
from ..older import NoHistory, Older, environment
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import DECIDING, Verdict

STORES = ("file", "postgres", "nats", "s3")
_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_FAIL_ONCE = 20  # one of so many messages fails its first attempt, where the worker is new enough to know how
_START = 120.0  # seconds in which processes must have begun and got messages, on a busy machine too
_MORE = 20  # messages of a producer that comes when the others have ended too early
_COMMAND = 60.0  # seconds of a command
_COUNTS = ("attempted", "acknowledged", "completed", "dead", "refused", "duplicate_executions", "kills")
_OPEN = """
import sys
import holdfast
with holdfast.sync.connect(sys.argv[1]) as broker:
    options = {"lease": float(sys.argv[3]), "max_attempts": int(sys.argv[4]), "retry": holdfast.Fixed(0.1)}
    broker.queue(sys.argv[2], **options).stats()
print(holdfast.__file__)
"""


async def upgrade(settings: Settings) -> Verdict:
    """On one store, or on each of the four."""
    whole = Verdict(run="upgrade")
    whole.notes["table"] = " | ".join(_Figures.__struct_fields__)
    for store in STORES if settings.store == "all" else (settings.store,):
        root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
        try:
            older = Older(store, root)
            with _opened(store, root) as url:
                verdict, figures = await _on_store(store, settings, url, older)
        except NoHistory as error:
            whole.failures.append(f"{store}: {error}")
            continue
        finally:
            shutil.rmtree(root, ignore_errors=True)
        _add(whole, store, verdict)
        whole.notes[store] = " | ".join(map(str, msgspec.structs.astuple(figures)))
    return whole


@contextmanager
def _opened(store: str, root: Path) -> Iterator[str]:
    if store == "file":
        yield f"file://{root / 'store'}"
    elif store == "postgres":
        with postgres.Server() as database:
            yield database.url()
    elif store == "nats":
        with nats.Server() as server:
            yield server.url
    elif store == "s3":
        with s3.Server() as bucket:
            yield bucket.url("chaos")
    else:
        raise SystemExit(f"there is no upgrade on {store!r}; there are {', '.join(STORES)}")


def _add(whole: Verdict, store: str, verdict: Verdict) -> None:
    for name in (*_COUNTS, "order_inversions", "effective_kills", *DECIDING):
        setattr(whole, name, getattr(whole, name) + getattr(verdict, name))
    whole.failures += [f"{store}: {failure}" for failure in verdict.failures]
    for name, examples in verdict.examples.items():
        whole.examples.setdefault(name, []).extend(f"{store}: {example}" for example in examples)


class _Figures(msgspec.Struct):
    """One row of the table. Old and new are versions; `old_to_new`: sent by the old, completed by the new one."""

    commit: str
    format: str
    sent_by_old: int
    sent_by_new: int
    old_to_old: int
    old_to_new: int
    new_to_old: int
    new_to_new: int
    kills: int
    hit_a_lease: int
    old_ones_restarted: int
    old_after_the_raise: str


async def _on_store(store: str, settings: Settings, url: str, older: Older) -> tuple[Verdict, _Figures]:
    made = await _open_with_old(older, url, settings)
    if made.returncode or str(older.folder) not in made.stdout:
        raise RuntimeError(f"the older version, {older.commit}, did not make the store:\n{made.stderr}")
    if not (found := await _format(url)).can_rise:
        raise NoHistory(f"the older version, {older.commit}, has the same format {found.number}: the run shows nothing")
    async with staged(f"upgrade-{store}", settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        trial = _Trial(stage, url, older)
        await trial.side_by_side()
        await trial.raise_format()
        await trial.new_alone()
        verdict = await stage.finish()
        return verdict, trial.judge(verdict)


async def _open_with_old(older: Older, url: str, settings: Settings) -> subprocess.CompletedProcess[str]:
    """As a process that starts: it opens the store and uses its queue."""
    command = [sys.executable, "-c", _OPEN, url, QUEUE, f"{settings.lease}", f"{_ATTEMPTS}"]
    return await _run(command, env=environment(str(older.folder)), cwd=older.folder)


async def _run(command: list[str], **how: object) -> subprocess.CompletedProcess[str]:
    run = partial(subprocess.run, command, capture_output=True, text=True, timeout=_COMMAND, check=False, **how)
    return await asyncio.to_thread(run)


async def _format(url: str) -> Format:
    async with holdfast.connect(url) as broker:
        assert broker.store.format is not None
        return broker.store.format


class _Trial:
    """One store: old and new at work, then the raise, then only new ones. Slots of old ones end with `o`."""

    def __init__(self, stage: Stage, url: str, older: Older) -> None:
        self._stage = stage
        self._settings = stage.settings
        self._url = url
        self._older = older
        self._failures: list[str] = []
        self._formats: list[Format] = []
        self._told = ""
        self._producers = 0

    async def side_by_side(self) -> None:
        """Old and new ones send and work, and are killed in turn; each comes back as it was."""
        half = self._settings.kills // 2 + self._settings.kills % 2
        for number in range(self._settings.workers):
            self._start_worker(f"w{number}", old=number % 2 == 0)
        for number in range(self._settings.producers):
            self._start_producer(old=number % 2 == 0, waves=half)
        await self._kills([number % 2 == 0 for number in range(max(2, half))])
        await self._until(self._has_mixed, "messages go from each version to the other")
        self._formats.append(await _format(self._url))
        await self._producers_end()

    async def raise_format(self) -> None:
        """As the guide says: the last old process ends, an operator runs the command of the new version."""
        late = self._stage.fleet.retire([each for each in self._stage.fleet.members.values() if each.spec.tree])
        self._expect(not late, f"old workers did not stop within their grace: {', '.join(late)}")
        command = [sys.executable, "-m", "holdfast", "install", "--url", self._url]
        left = await _run(command)
        self._expect("left: raise the format" in left.stdout, f"install without --yes said {left.stdout!r}")
        raised = await _run([*command, "--yes"])
        self._formats.append(await _format(self._url))
        before, after = self._formats
        step = f"raise the format from {before.number} to {before.newest}"
        self._expect(step in raised.stdout, f"install --yes said {raised.stdout!r} {raised.stderr!r}")
        self._expect((before.number, after.number) == (before.newest - 1, before.newest), f"formats: {self._formats}")
        refused = await _open_with_old(self._older, self._url, self._settings)
        said = (refused.stderr.strip().splitlines() or ["it works"])[-1]
        self._told = "refused" if refused.returncode and "upgrade" in said else said
        self._expect(self._told == "refused", f"the older version after the raise: {said}")

    async def new_alone(self) -> None:
        for number in range(self._settings.workers):
            if number % 2 == 0:
                self._start_worker(f"w{number}", old=False)
        kills = self._settings.kills // 2
        for _ in range(2):
            self._start_producer(old=False, waves=kills)
        await self._kills([False] * kills)

    def _start_worker(self, slot: str, *, old: bool) -> None:
        self._start("work", slot, old=old)

    def _start_producer(self, *, old: bool, waves: int = 0) -> None:
        share = self._settings.messages // (self._settings.producers + 2) if waves else _MORE
        rate = share / (waves * self._settings.interval + 1.0)
        slot, self._producers = f"p{self._producers}", self._producers + 1
        self._start("produce", slot, old=old, messages=share, rate=rate, kinds={"once": share // _FAIL_ONCE})

    def _start(self, role: str, slot: str, *, old: bool, **changes: object) -> None:
        tree = str(self._older.folder) if old else ""
        spec = msgspec.structs.replace(self._stage.spec, tree=tree, **changes)
        self._stage.fleet.start(role, f"{slot}{'o' if old else 'n'}", spec)

    async def _kills(self, old_ones: list[bool]) -> None:
        for number, old in enumerate(old_ones, 1):
            await self._stage.pause()
            await self._until(partial(self._is_any_at_work, old), "a worker gets messages")
            self._stage.fleet.kill(self._stage.chance.choice(self._at_work(old)))
            self._stage.fleet.replace_dead("work")
            self._stage.check_producers()
            self._stage.tell(f"{number} of {len(old_ones)} kills")

    def _at_work(self, old: bool) -> list[Member]:
        return [each for each in self._stage.fleet.of("work") if bool(each.spec.tree) is old and each.at_work]

    def _is_any_at_work(self, old: bool) -> bool:
        return bool(self._at_work(old))

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Messages come as long as that takes: who starts late on a busy machine must find some."""
        deadline, old = time.monotonic() + _START, True
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {_START:.0f} s")
            if not any(each.running for each in self._stage.fleet.of("produce")):
                old = not old and len(self._formats) == 0
                self._start_producer(old=old)
            await asyncio.sleep(0.2)

    def _has_mixed(self) -> bool:
        histories = read_folder(self._stage.fleet.folder)
        ways = _ways(histories)
        return bool(ways["on"] and ways["no"] and _old_ones_again(histories))

    async def _producers_end(self) -> None:
        await until(
            lambda: all(not each.running for each in self._stage.fleet.of("produce")),
            seconds=self._settings.deadline,
            what="the producers end",
        )
        self._stage.check_producers()

    def _expect(self, condition: bool, sentence: str) -> None:
        if not condition:
            self._failures.append(sentence)

    # ------------------------------------------------------------------ judging

    def judge(self, verdict: Verdict) -> _Figures:
        histories = read_folder(self._stage.fleet.folder)
        sent, ways, again = _sent(histories), _ways(histories), _old_ones_again(histories)
        before, after = self._formats
        figures = _Figures(
            commit=self._older.commit[:7], format=f"{before.number} to {after.number}", sent_by_old=sent["o"],
            sent_by_new=sent["n"], old_to_old=ways["oo"], old_to_new=ways["on"], new_to_old=ways["no"],
            new_to_new=ways["nn"], kills=verdict.kills, hit_a_lease=verdict.effective_kills,
            old_ones_restarted=len(again), old_after_the_raise=self._told,
        )  # fmt: skip
        verdict.failures += self._failures
        verdict.expect(figures.old_to_new > 0, "the new version completed nothing that the old one sent")
        verdict.expect(figures.new_to_old > 0, "the old version completed nothing that the new one sent")
        verdict.expect(bool(again), "no process of the old version that was started again did anything")
        verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails for good")
        if self._settings.strict:
            verdict.expect(verdict.effective_kills > 0, "no kill hit a leased message: the run shows nothing")
        return figures


def _version(process: str) -> str:
    """`o` or `n`, of a process such as `w3o-2`."""
    return process.rpartition("-")[0][-1:]


def _sent(histories: dict[str, list[Event]]) -> Counter[str]:
    return Counter(
        _version(process)
        for process, events in histories.items()
        for event in events
        if isinstance(event, Acknowledged)
    )


def _ways(histories: dict[str, list[Event]]) -> Counter[str]:
    """How many messages went from which version to which."""
    senders = {
        event.id: _version(process)
        for process, events in histories.items()
        for event in events
        if isinstance(event, Acknowledged)
    }
    ended = {
        event.id: _version(process)
        for process, events in histories.items()
        for event in events
        if isinstance(event, Settled) and event.action == "complete" and event.answer == "ok"
    }
    return Counter(senders[id] + version for id, version in ended.items() if id in senders)


def _old_ones_again(histories: dict[str, list[Event]]) -> list[str]:
    """Old workers in a second life or a later one, that got messages."""
    return [
        process
        for process, events in histories.items()
        if _version(process) == "o" and not process.endswith("-1") and any(isinstance(each, Claimed) for each in events)
    ]
