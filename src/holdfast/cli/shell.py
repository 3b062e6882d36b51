"""One command's run: the options every command takes, the broker it opens, the errors it turns into a line."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..escaping import many_lines, one_line
from .options import COMMON, Group
from .output import Output

if TYPE_CHECKING:
    from ..broker import Broker
    from ..queue import Queue

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

LogFormat = Annotated[Literal["text", "json"], typer.Option(help="Of the log on stderr.")]

LOG_LEVEL = "HOLDFAST_LOG_LEVEL"


class Shell(Output):
    """What a command gets first: where it works and how it answers."""

    def __init__(self, *, url: str | None, json: bool, verbose: bool, quiet: bool, utc: bool) -> None:
        super().__init__(json=json, quiet=quiet, utc=utc)
        self.url = url
        self.verbose = verbose

    def log_as(self, format: str) -> None:
        """The log on stderr as `text` or `json`."""
        import logging

        from ..log_lines import formatter

        for handler in logging.getLogger("holdfast").handlers:
            handler.setFormatter(formatter(format))

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[Broker]:
        """The broker of this command."""
        from ..broker import connect

        async with connect(self.url) as broker:
            yield broker

    @asynccontextmanager
    async def queue(self, name: str) -> AsyncIterator[Queue[Any]]:
        """A queue that must be there: a typing error must not make a new one."""
        async with self.broker() as broker:
            yield await broker.queue(name, create=False)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before what cannot be undone; without a person to ask, refuse."""
        if yes:
            return
        if not is_a_person():
            raise typer.BadParameter("this cannot be undone: say --yes when there is nobody to ask")
        typer.confirm(question, abort=True, err=True)


def is_a_person() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register `f(shell, …)`, async or not, as a command with the options that every command takes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        mine = {one.name for one in own}  # a command may have a --url of its own
        common = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for key, (annotation, default) in COMMON.items()
            if key not in mine
        ]
        parameters = [*(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *common]

        def run(**values: Any) -> None:
            shell = Shell(**{key: default if key in mine else values.pop(key) for key, (_, default) in COMMON.items()})
            _run(shell, function, values)

        run.__doc__ = function.__doc__
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
        app.command(name)(run)
        return function

    return register


def _run(shell: Shell, function: Callable[..., Any], values: dict[str, Any]) -> None:
    import asyncio

    from ..errors import HoldfastError

    try:
        with log_on_stderr(verbose=shell.verbose):
            answer = function(shell, **values)
            if inspect.iscoroutine(answer):
                asyncio.run(answer)
    except HoldfastError as error:
        if shell.verbose:
            import traceback

            typer.echo(many_lines(traceback.format_exc()), err=True)
        typer.echo(one_line(f"holdfast: {str(error) or type(error).__name__}"), err=True)
        raise typer.Exit(1) from error


@contextmanager
def log_on_stderr(*, verbose: bool) -> Iterator[None]:
    """Holdfast's log on stderr: all of it when verbose, else as configured, else warnings. Undone afterwards."""
    import logging

    from ..log_lines import formatter

    before = os.environ.get(LOG_LEVEL)
    if verbose:  # in the environment, where worker processes find it too
        os.environ[LOG_LEVEL] = "debug"
    logger = logging.getLogger("holdfast")
    level, handler = logger.level, logging.StreamHandler()
    handler.setFormatter(formatter("text"))
    logger.addHandler(handler)
    try:
        logger.setLevel(_level().upper())
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        os.environ.pop(LOG_LEVEL, None)
        if before is not None:
            os.environ[LOG_LEVEL] = before


def _level() -> str:
    """The level that environment or file ask for. Bad ones are for the command to tell: doctor makes a line of it."""
    from .. import config
    from ..errors import ConfigError

    try:
        return config.load().log_level or "warning"
    except ConfigError:
        return "warning"


def group(help: str) -> typer.Typer:
    """An empty group of commands, set as all of ours are."""
    return typer.Typer(
        cls=Group, help=help, rich_markup_mode=None, no_args_is_help=True, pretty_exceptions_enable=False
    )
