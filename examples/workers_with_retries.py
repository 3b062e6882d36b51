"""Handlers that fail: retries, dead letters, replay. Run: python examples/workers_with_retries.py [URL]"""

import asyncio
import sys

import holdfast

gateway_is_up = False


async def charge(order: dict[str, int], context: holdfast.Context) -> str:
    """Fails in all the ways a handler can."""
    if order["amount"] <= 0:
        raise holdfast.Dead("an order needs an amount")  # trying again would not help
    if order["amount"] > 1000 and not gateway_is_up:
        raise ConnectionError("the gateway does not answer")  # tried again, as the queue's policy says
    if context.attempt == 1:
        raise holdfast.Retry(0.1)  # tried again when the handler says
    return f"charged {order['amount']}"


async def main(url: str) -> None:
    global gateway_is_up
    async with holdfast.connect(url) as broker:
        orders = await broker.queue("orders", max_attempts=3, retry=holdfast.Fixed(0.1))
        good = await orders.enqueue({"amount": 20})
        hopeless = await orders.enqueue({"amount": 0})
        unlucky = await orders.enqueue({"amount": 5000})

        worker = orders.worker(charge, on_error=lambda error, delivery: print(f"attempt {delivery.attempt}: {error!r}"))
        await worker.start()
        for id in (good, hopeless, unlucky):
            record = await orders.wait(id, timeout=20)
            print(f"{record.status} after {record.attempts} attempts: {record.result or record.error}")

        gateway_is_up = True
        print(f"replayed {await orders.dead.replay([unlucky])} dead letter")
        while (await orders.stats()).completed < 2:
            await asyncio.sleep(0.05)
        await worker.stop()
        print(f"{(await orders.stats()).completed} completed, {await orders.dead.count()} dead")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
