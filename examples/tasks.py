"""The handlers of the three-terminal story. In two terminals: cd examples && holdfast worker run tasks:app"""

import os

import holdfast

app = holdfast.App()  # the store: HOLDFAST_URL, or holdfast.yaml, or ./holdfast-data


@app.handler("greetings", concurrency=4)
async def greet(name: str, context: holdfast.Context) -> str:
    """Greet one person."""
    print(f"worker {os.getpid()}: hello, {name}", flush=True)
    return f"hello, {name}"
