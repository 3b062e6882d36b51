"""Credentials in URLs: whatever is wrong with one, no error, log or repr shows a part of them."""

from __future__ import annotations

import asyncio
import logging
import traceback
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast.cli.root import app
from holdfast.errors import ConfigError, HoldfastError, Unavailable
from holdfast.stores.opening import locate

SCHEMES = ["memory", "file", "postgresql", "postgres", "nats", "tls", "s3", "gs", "az"]
SCHEMES += ["slatedb+file", "slatedb+s3", "http", "https", "xyz", "postgresq"]
ODD = ["/", "?", "#", "@", ":", "%", "&", "=", "%zz", " ", "[", "]", "+", "\\"]
SHAPES = [
    "{scheme}://user:{secret}@127.0.0.1:1/db",
    "{scheme}://{secret}:x@127.0.0.1:1/db",
    "{scheme}://{secret}@127.0.0.1:1/db",
    "{scheme}://user:{secret}@127.0.0.1:port/db",
    "{scheme}://user:{secret}@127.0.0.1:1/db?colour=red",
    "{scheme}://127.0.0.1:1/db?password={secret}",
    "{scheme}://127.0.0.1:1/db?secret_access_key={secret}&colour=red",
    "{scheme}://127.0.0.1:1/db?passwrd={secret}",
    "{scheme}:user:{secret}@127.0.0.1",
]


def urls(scheme: str) -> list[str]:
    secrets = [form for odd in ODD for form in (f"CANA{odd}RYBIRD", quote(f"CANA{odd}RYBIRD", safe=""))]
    return [shape.format(scheme=scheme, secret=secret) for shape in SHAPES for secret in secrets]


def is_shown(text: str) -> bool:
    return "CANA" in text or "RYBIRD" in text


def all_of(error: BaseException) -> str:
    """What a traceback would say of it, with its causes."""
    return "".join(traceback.format_exception_only(error)) + (
        all_of(error.__cause__) if error.__cause__ is not None else ""
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_error_of_a_url_shows_a_credential(scheme: str) -> None:
    refused = 0
    for url in urls(scheme):
        try:
            found = locate(url)
        except ConfigError as error:
            refused += 1
            assert not is_shown(all_of(error)), url
        else:
            assert not is_shown(repr(found)), url
    assert refused > 10


@pytest.mark.parametrize(
    "url",
    [
        "host=127.0.0.1 user=u password=CANARYBIRD",
        "//u:CANARYBIRD@h/db",
        "postgresql://u:CANARYBIRD\uff20127.0.0.1:1/db",
        "postgresql:///db?host=u:CANARYBIRD@x",
        "postgresql://u@127.0.0.1:1/db;password=CANARYBIRD",
        "postgresql://u:CANARYBIRD%0a@127.0.0.1:1/db",
        "s3://bucket/p?access_key_id=a%0aCANARYBIRD&secret_access_key=CANARYBIRD&region=eu",
        "http://127.0.0.1:1/?token=a%0aCANARYBIRD",
        "nats://u:CANARYBIRD%00@127.0.0.1:1",
    ],
)
def test_what_drivers_would_show_or_panic_at_is_refused_before(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        locate(url)
    assert not is_shown(all_of(caught.value))


async def test_a_seed_where_the_path_of_its_file_is_expected_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="the file of nkey cannot be read: FileNotFoundError") as caught:
        await holdfast.connect("nats://127.0.0.1:1?nkey=CANARYBIRD")
    assert not is_shown("".join(traceback.format_exception(caught.value)).replace("?nkey=CANARYBIRD", ""))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://CANARYBIRD:CANA%2FRYBIRD@127.0.0.1:1/db?sslpassword=CANARYBIRD",
        "nats://CANARYBIRD:CANA%2FRYBIRD@127.0.0.1:1",
        "nats://CANARYBIRD@127.0.0.1:1",
        "s3://bucket/x?endpoint=http://127.0.0.1:1&allow_http=true&access_key_id=CANARYBIRD&secret_access_key=CANARYBIRD",
    ],
)
async def test_no_error_of_connecting_shows_a_credential(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(HoldfastError) as caught:
        await holdfast.connect(url, connect_timeout=1.0, operation_timeout=1.0)
    assert isinstance(caught.value, Unavailable)
    assert not is_shown(all_of(caught.value))
    assert not is_shown(caplog.text)
    bounded = f"{url}{'&' if '?' in url else '?'}connect_timeout=1"
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["queue", "list", "--url", bounded])
    assert shown.exit_code == 1
    assert not is_shown(shown.output)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "nats", "tls"])
@pytest.mark.parametrize("odd", ODD)
async def test_no_error_of_opening_shows_a_credential_that_is_not_encoded(scheme: str, odd: str) -> None:
    """What is taken for a URL all the same reaches the driver, which has words of its own."""
    with pytest.raises(HoldfastError) as caught:
        await holdfast.connect(f"{scheme}://user:CANA{odd}RYBIRD@127.0.0.1:1/db", connect_timeout=0.3)
    assert not is_shown(all_of(caught.value))
    with pytest.raises(HoldfastError) as caught:
        await holdfast.connect(f"{scheme}://user:x@y{odd}CANA:RYBIRD@127.0.0.1:1/db", connect_timeout=0.3)
    assert not is_shown(all_of(caught.value))


@pytest.mark.parametrize(
    "key",
    [
        "require_auth=scram-sha-256",
        "channel_binding=require",
        "requirepeer=postgres",
        "gssencmode=require",
        "hostaddr=1.2.3.4",
        "requiressl=1",
    ],
)
def test_a_protection_that_the_driver_does_not_give_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="does not honour"):
        locate(f"postgresql://host/db?{key}")


def test_what_does_not_tell_of_credentials_is_said() -> None:
    """Though it has a word in common with them."""
    with pytest.raises(ConfigError, match="does not honour require_auth"):
        locate("postgresql://postgres:db@127.0.0.1/postgres?require_auth=scram-sha-256")
    with pytest.raises(ConfigError, match="at least 3 letters"):
        locate("s3://b/p?region=eu&secret_access_key=letters")
    with pytest.raises(ConfigError, match="is not shown"):
        locate("memory://letters:digits@x")


def test_a_port_that_is_no_number_is_said() -> None:
    with pytest.raises(ConfigError, match=r"postgresql://\*\*\*@h:12x/db: a port is a number"):
        locate("postgresql://u:secret@h:12x/db")


def test_a_protection_that_is_turned_off_is_none() -> None:
    assert locate("postgresql://host/db?channel_binding=prefer&gssencmode=disable").place == "postgresql://host/db"
