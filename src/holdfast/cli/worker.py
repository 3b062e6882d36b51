"""holdfast worker: run."""

from __future__ import annotations

from typing import Annotated

import typer

from .shell import LogFormat, Shell, command, group

app = group("Run the handlers of an app.")


@command(app, "run")
def run(
    shell: Shell,
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Such as tasks:app.")],
    concurrency: Annotated[int | None, typer.Option(min=1, help="Messages at once, per queue and process.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue; may be repeated.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Fail when the store is not there.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Prometheus metrics here; further processes: the ports above.")
    ] = None,
    log_format: LogFormat = "text",
) -> None:
    """Work until SIGTERM or Ctrl-C.

    Then running handlers finish; what has not begun goes back at once. A store that is not there is waited for, with a
    line a minute.
    """
    from ..worker.processes import run_app

    shell.log_as(log_format)
    run_app(
        target,
        url=shell.url,
        concurrency=concurrency,
        processes=processes,
        queues=tuple(queue or ()),
        wait=not no_wait,
        metrics_port=metrics_port,
        log_format=log_format,
    )


@app.callback()
def worker() -> None:
    """Run the handlers of an app."""  # a callback keeps `run` a command of its own while it is the only one
