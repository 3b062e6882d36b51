"""Leases end: completed, retried, released, dead; and answers for those that changed nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from ... import ids as makers
from ...errors import StoreError
from ..records import JSON, Answer, Envelope, Settlement
from . import faults, rows
from .pool import Pool
from .statements import Statements

Key: TypeAlias = tuple[str, int]  # id and token
Move: TypeAlias = Callable[[Any, str, str, Envelope], Awaitable[None]]  # connection, target queue, id, message


class Settler:
    """One queue's, in one process."""

    def __init__(
        self,
        pool: Pool,
        statements: Statements,
        queue: str,
        *,
        keeps: Callable[[], bool],
        moves: Callable[[], bool],
        refresh: Callable[[], Awaitable[None]],
        move: Move,
    ) -> None:
        self._pool = pool
        self._sql = statements
        self._queue = queue
        self._keeps = keeps  # whether the queue keeps what is completed, as last heard
        self._moves = moves  # whether its dead letters go to another queue, as last heard
        self._refresh = refresh  # hears again
        self._move = move

    async def settle(self, settlements: Sequence[Settlement], *, dead: bool = False) -> list[Answer]:
        try:
            return await self._settle(settlements, dead=dead)
        except StoreError as error:
            if not faults.lacks_letters(error):
                raise
        # A failed attempt must be able to say so. What happened before the refusal is a repeat now, which is success.
        return await self._settle([rows.in_ascii(each) for each in settlements], dead=dead)

    async def _settle(self, settlements: Sequence[Settlement], *, dead: bool) -> list[Answer]:
        alike = None if dead else rows.alike(settlements)
        done = set[Key]() if alike is None else await self._complete_alike(alike)
        if alike is not None and len(done) == len(settlements):
            return ["ok"] * len(settlements)
        keys = [(s.id, rows.token_number(s.token, s.id)) for s in settlements]
        ranks = [rows.rank_under(s.token, s.id) for s in settlements]
        if alike is None:
            done = await self._by_kind(settlements, keys, ranks, dead=dead)
        answers: list[Answer] = ["ok" if key in done else "lost" for key in keys]
        if "lost" in answers:
            await self._judge(settlements, keys, ranks, answers)
        return answers

    async def _by_kind(
        self, settlements: Sequence[Settlement], keys: Sequence[Key], ranks: Sequence[int | None], *, dead: bool
    ) -> set[Key]:
        valid = [n for n, rank in enumerate(ranks) if rank is not None and keys[n][1] >= 0]
        groups: list[Callable[[list[int]], Awaitable[set[Key]]]] = []
        indexes: list[list[int]] = []
        for wanted, call in self._calls(settlements, keys, ranks, dead=dead):
            chosen = [n for n in valid if wanted(settlements[n])]
            if chosen:
                groups.append(call)
                indexes.append(chosen)
        done: set[Key] = set()
        for call, chosen in zip(groups, indexes, strict=True):
            done |= await call(chosen)
        return done

    async def extend(
        self, pool: Pool, leases: Sequence[tuple[str, str]], seconds: float, *, dead: bool
    ) -> list[float | None]:
        """The new ends, None where the lease is lost."""
        keys = [(id, rows.token_number(token, id)) for id, token in leases]
        ranks = [rows.rank_under(token, id) for id, token in leases]
        asked = [(*key, rank) for key, rank in zip(keys, ranks, strict=True) if rank is not None and key[1] >= 0]
        if not asked:
            return [None] * len(leases)
        ids, tokens, places = ([entry[n] for entry in asked] for n in range(3))
        sql = self._sql["extend_d" if dead else "extend_q"]
        found = await pool.fetch(sql, ids, places, tokens, seconds, queue=self._queue)
        ends = {(str(row[0]), row[1]): row[2] for row in found}
        return [ends.get(key) for key in keys]

    def _calls(
        self, settlements: Sequence[Settlement], keys: Sequence[Key], ranks: Sequence[int | None], *, dead: bool
    ) -> list[tuple[Callable[[Settlement], bool], Callable[[list[int]], Awaitable[set[Key]]]]]:
        """Which statement serves which settlements."""

        def pick(chosen: list[int]) -> tuple[list[str], list[Any], list[int], list[Settlement]]:
            return ([keys[n][0] for n in chosen], [ranks[n] for n in chosen], [keys[n][1] for n in chosen],
                    [settlements[n] for n in chosen])  # fmt: skip

        if dead:
            return [(lambda s: True, lambda chosen: self._settle_dead(*pick(chosen)))]
        return [
            (lambda s: s.action == "complete", lambda chosen: self._complete(*pick(chosen))),
            (lambda s: s.action != "complete", lambda chosen: self._other(*pick(chosen))),
        ]

    async def _complete(self, ids: list[str], ranks: list[Any], tokens: list[int], these: list[Settlement]) -> set[Key]:
        keeps = self._keeps()
        if not any(keeps if s.keep is None else s.keep for s in these):
            [(_, those, by)] = await self._fetch("settle_gone", ids, ranks, tokens)
        else:
            results, keep = [s.result for s in these], [s.keep for s in these]
            workers = [rows.plain(s.worker) for s in these]
            [(_, those, by)] = await self._fetch("settle_done", ids, ranks, tokens, results, keep, workers)
        if those is None:  # the usual case: everything asked for has happened
            return set(zip(ids, tokens, strict=True))
        return set(zip(map(str, those), by, strict=True))

    async def _complete_alike(self, these: rows.Alike) -> set[Key]:
        ids, token = these.ids, these.token
        keep = self._keeps() if these.keep is None else these.keep
        if keep:
            args = (these.rank, token, these.keep, these.worker)
            [(_, those)] = await self._fetch("settle_done_alike", ids, *args)
        else:
            [(_, those)] = await self._fetch("settle_gone_alike", ids, these.rank, token)
        return {(id, token) for id in (ids if those is None else map(str, those))}

    async def _settle_dead(
        self, ids: list[str], ranks: list[Any], tokens: list[int], these: list[Settlement]
    ) -> set[Key]:
        actions, delays = [rows.ACTIONS[s.action] for s in these], [s.delay for s in these]
        errors, workers = [rows.plain(s.error) for s in these], [rows.plain(s.worker) for s in these]
        results, keep = [s.result for s in these], [s.keep for s in these]
        found = await self._fetch("settle_dead", ids, ranks, tokens, actions, delays, errors, workers, results, keep)
        return _keys(found, ids, tokens)

    async def _other(self, ids: list[str], ranks: list[Any], tokens: list[int], these: list[Settlement]) -> set[Key]:
        actions, delays = [rows.ACTIONS[s.action] for s in these], [s.delay for s in these]
        errors, workers = [rows.plain(s.error) for s in these], [rows.plain(s.worker) for s in these]
        found = await self._end(ids, ranks, tokens, actions, delays, errors, False, workers)
        return {(str(row[0]), row[1]) for row in found}

    async def end_expired(self, entries: Sequence[tuple[str, int, int]], reason: str) -> list[tuple[str, int, str]]:
        """Leases that are over and were the last: (id, rank, token) in, (id, attempts, verdict) out."""
        ids, ranks, tokens = ([entry[n] for entry in entries] for n in range(3))
        n = len(entries)
        found = await self._end(ids, ranks, tokens, [2] * n, [0.0] * n, [reason] * n, True, [None] * n)
        return [(str(row[0]), row[2], row[3]) for row in found]

    async def _end(self, *args: Any) -> list[Any]:
        """settle_other.sql; what goes to another queue arrives there in the same transaction."""
        if not self._moves():
            found = await self._fetch("settle_other", *args, False)
            if len(found) == len(args[0]):
                return found
            await self._refresh()  # leases are lost, or dead letters go to another queue since we last heard
            if not self._moves():
                return found

        async def step(connection: Any) -> list[Any]:
            found = list(await connection.fetch(self._sql["settle_other"], self._queue, *args, True))
            for row in found:
                if row["payload"] is not None:
                    await self._carry(connection, row)
            return found

        return await self._pool.transact(step, queue=self._queue)

    async def _carry(self, connection: Any, row: Any) -> None:
        id = str(row["id"])
        why = {"dead_from": self._queue, "dead_reason": row["reason"], "dead_id": id}
        headers = (rows.headers_from(row["headers"]) or {}) | why
        copy = makers.text(makers.derived(makers.number(id) or 0, "dead"))
        message = Envelope(row["payload"], row["content_type"] or JSON, headers, 255 - row["rank"])
        await self._move(connection, row["target"], copy, message)

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        return await self._pool.fetch(self._sql[name], self._queue, *args, queue=self._queue)

    # ------------------------------------------------------------------ what changed nothing

    async def _judge(
        self,
        settlements: Sequence[Settlement],
        keys: Sequence[Key],
        ranks: Sequence[int | None],
        answers: list[Answer],
    ) -> None:
        """A repeat is success; a message nobody knows is unknown; everything else is lost."""
        doubtful = [n for n, answer in enumerate(answers) if answer == "lost" and ranks[n] is not None]
        entries = {n: keys[n][1] * 4 + rows.ACTIONS[settlements[n].action] for n in doubtful}
        used = await self._used([keys[n][0] for n in doubtful], [ranks[n] for n in doubtful]) if doubtful else {}
        gone = await self._gone([entry for n, entry in entries.items() if entry not in used.get(keys[n][0], ())])
        for n, (id, _) in enumerate(keys):
            if answers[n] != "ok":
                entry = entries.get(n, -1)
                again = entry in used.get(id, ()) or (entry, id) in gone
                answers[n] = "ok" if again else "lost" if id in used else "unknown"

    async def _used(self, ids: list[str], ranks: list[Any]) -> dict[str, set[int]]:
        """By what each message that is known was settled so far."""
        used: dict[str, set[int]] = {}
        found = list(await self._pool.fetch(self._sql["judge"], ids, ranks, queue=self._queue))
        if missing := set(ids).difference(str(row[0]) for row in found):  # their priority may have been changed
            moved = await self._pool.fetch(self._sql["ranks"], list(missing), queue=self._queue)
            if moved:
                places = [row[0] for row in moved], [row[1] for row in moved]
                found += await self._pool.fetch(self._sql["judge"], *places, queue=self._queue)
        for id, token, entries in found:
            used.setdefault(str(id), set()).update(entries or ())
            if token is not None:
                used[str(id)].add(token * 4)
        return used

    async def _gone(self, entries: Sequence[int]) -> set[tuple[int, str]]:
        asked = [entry for entry in entries if entry >= 0]
        found = await self._fetch("judge_gone", asked) if asked else []
        return {(row[0], str(id)) for row in found for id in row[1]}


def _keys(found: Sequence[Any], ids: Sequence[str], tokens: Sequence[int]) -> set[Key]:
    if len(found) == len(ids):  # the usual case: everything asked for has happened
        return set(zip(ids, tokens, strict=True))
    return {(str(row[0]), row[1]) for row in found}
