"""`holdfast serve`: a store for everybody who cannot or should not open it. Needs the extra `server`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..broker import Broker
    from .application import Application

NEEDS = "the server needs an extra: pip install 'holdfast[server]'"


def app(broker: Broker, *, tokens: Iterable[str] = (), **settings: Any) -> Application:
    """An open broker as an ASGI application, to mount in one's own; who opens the broker closes it.

    `tokens` are lines `name:role[:queue patterns]:token`; the other settings are those of `ServerSettings`.
    """
    try:
        from .application import Application
    except ImportError as error:
        raise ConfigError(NEEDS) from error
    from .served import Served
    from .settings import ServerSettings
    from .tokens import Tokens

    made = ServerSettings(tokens=Tokens(tokens), **settings)
    return Application({"": Served(broker, made)}, made)


__all__ = ["app"]
