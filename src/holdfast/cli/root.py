"""The top of the command line. It imports nothing but Typer, so that `holdfast --help` answers at once."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from .options import Group, Json, Quiet, Url, Utc, Verbose


class Part(NamedTuple):
    """A command or a group of commands, and the module whose `app` holds it."""

    help: str
    module: str
    group: bool = True  # False: one command of the module, under its own name


PARTS = {
    "demo": Part("See the whole story on an embedded store, in less than a minute.", "holdfast.cli.demo", group=False),
    "queue": Part("Create, list, configure, pause and delete queues.", "holdfast.cli.queue"),
    "message": Part("Send, read, settle and look up messages.", "holdfast.cli.message"),
    "dead": Part("Look at dead letters, replay or delete them.", "holdfast.cli.dead"),
    "archive": Part("Look at finished messages, replay or purge them.", "holdfast.cli.archive"),
    "schedule": Part("Enqueue messages by cron text or at intervals.", "holdfast.cli.schedule"),
    "worker": Part("Run the handlers of an app.", "holdfast.cli.worker"),
    "serve": Part("Serve stores over HTTP: API, http:// store, metrics.", "holdfast.cli.serve", group=False),
    "top": Part("Watch queues, rates and workers in the terminal.", "holdfast.cli.top", group=False),
    "install": Part("Make what the store needs; harmless to repeat.", "holdfast.cli.store", group=False),
    "grants": Part("PostgreSQL: print or apply what a worker's role needs.", "holdfast.cli.store", group=False),
    "uninstall": Part("Remove every queue and message from the store.", "holdfast.cli.store", group=False),
    "doctor": Part("Check configuration, store and queues; say what survives what.", "holdfast.cli.store", group=False),
    "maintain": Part("Run retention and housekeeping once, now.", "holdfast.cli.store", group=False),
    "scrub": Part("Read everything again and verify it.", "holdfast.cli.store", group=False),
    "recover": Part("Bring back messages that a bucket has set aside as late.", "holdfast.cli.store", group=False),
    "backup": Part("Copy everything that a store keeps, while it is in use.", "holdfast.cli.backup", group=False),
    "restore": Part("Put the queues of a backup into a store of any kind.", "holdfast.cli.backup", group=False),
    "move": Part("Put everything of one store into another.", "holdfast.cli.backup", group=False),
    "pipeline": Part("Spark jobs: ingest, process, lake, report, replay.", "holdfast.cli.pipeline"),
    "bench": Part("Measure this machine and this store.", "holdfast.bench.cli"),
}


class LazyGroup(Group):
    """Knows its commands by name and help; imports a command's module when it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Typer's "did you mean" looks at these keys; the values are never used, get_command answers.
        self.commands = dict.fromkeys(PARTS)  # type: ignore[assignment]  # names only, see above

    def list_commands(self, ctx: Any) -> list[str]:
        return list(PARTS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | TyperGroup | None:
        part = PARTS.get(cmd_name)
        if part is None:
            return None
        found: Any = typer.main.get_group(import_module(part.module).app)
        command = found if part.group else found.commands[cmd_name]
        command.name = cmd_name
        return command  # type: ignore[no-any-return]  # Typer's groups hold commands of Typer's own kinds

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, part.help) for name, part in PARTS.items()])


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    url: Url = None,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    utc: Utc = False,
) -> None:
    """Holdfast: a durable queue on the storage you already have.

    The options may stand before the command or after it. Without --url: HOLDFAST_URL, url: in holdfast.yaml, else
    ./holdfast-data.
    """
