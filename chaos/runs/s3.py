"""R4: a bucket behind a bad network, and workers and producers that are killed, while messages flow."""

from __future__ import annotations

from holdfast.retry import Fixed
from tests.servers.proxy import Faults, Proxy
from tests.servers.s3 import Server

from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_FAULTS = Faults(unavailable=0.10, dropped=0.05, conflict=0.02, delayed=0.05, truncated=0.01)


async def s3(settings: Settings) -> Verdict:
    """Every request of the processes goes through the proxy; ours, which judge, do not."""
    with Server() as server, Proxy(server.port, _FAULTS, seed=settings.seed) as proxy:
        async with staged(
            "s3", settings, url=server.url("chaos"), through=server.url("chaos", endpoint=proxy.endpoint),
            max_attempts=_ATTEMPTS, retry=Fixed(0.1), shards=settings.shards,
        ) as stage:  # fmt: skip
            stage.start_workers()
            stage.start_producers(seconds=settings.kills * settings.interval + 1.0)
            await _kills(stage)
            verdict = await stage.finish()
    hits = dict(sorted(proxy.counts.faults.items()))
    verdict.notes |= {f"faults that hit, {kind}": number for kind, number in hits.items()}
    verdict.notes |= {"requests": proxy.counts.requests.total(), "killed producers": settings.producer_kills}
    _judge(verdict, hits, strict=settings.strict)
    return verdict


async def _kills(stage: Stage) -> None:
    settings = stage.settings
    victims = ["worker"] * settings.kills + ["producer"] * settings.producer_kills
    stage.chance.shuffle(victims)
    for number, victim in enumerate(victims, 1):
        await stage.pause()
        if victim == "worker":
            await stage.somebody_works()
            await stage.kill_worker()
        else:
            await stage.kill_producer()
        stage.check_producers()
        stage.tell(f"{number} of {len(victims)} kills, {await stage.live():,} waiting or running")


def _judge(verdict: Verdict, hits: dict[str, int], *, strict: bool) -> None:
    """A producer that is not killed hears of every message whether it is there: its calls raise nothing."""
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    verdict.expect(sum(hits.values()) > 0, "no fault hit anything: the run shows nothing")
    if not strict:  # a short run may miss what is rare
        return
    verdict.expect(verdict.effective_kills > 0, "no kill hit a leased message: the run shows nothing")
    for kind in ("unavailable", "dropped", "conflict", "delayed", "truncated"):
        verdict.expect(hits.get(kind, 0) > 0, f"no fault of the kind {kind!r} hit anything")
