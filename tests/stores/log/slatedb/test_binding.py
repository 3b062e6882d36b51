"""The copy that replaces the binding's loop, and what happens when the package is missing."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace

import pytest

from holdfast.errors import ConfigError
from holdfast.stores.log.slatedb import binding, copying


class Buffer:
    def __init__(self, size: int):
        self._memory = ctypes.create_string_buffer(max(size, 1))
        self.data = ctypes.cast(self._memory, ctypes.POINTER(ctypes.c_char))
        self.len = 0

    @staticmethod
    def alloc(size: int) -> Buffer:
        return Buffer(size)

    def free(self) -> None:
        pass


def module(walks: bool, *, header: bytes = b"") -> ModuleType:
    """A binding in small."""

    class Converter:
        @staticmethod
        def lower(value):
            content = header + len(value).to_bytes(4, "big")
            content += bytes(list(iter(value))) if walks else value[:]
            buffer = Buffer.alloc(len(content))
            ctypes.memmove(buffer.data, bytes(content), len(content))
            buffer.len = len(content)
            return buffer

    return SimpleNamespace(_UniffiRustBuffer=Buffer, _UniffiFfiConverterBytes=Converter)  # type: ignore[return-value]


def test_a_loop_is_replaced_once():
    made = module(walks=True)
    slow = made._UniffiFfiConverterBytes.lower
    assert copying.install(made) == "replaced"
    fast = made._UniffiFfiConverterBytes.lower
    assert fast is not slow
    for value in (b"", b"x", bytes(range(256)), memoryview(b"view")):
        assert copying._content(fast(value)) == copying._content(slow(value))
    assert copying.install(made) == "replaced"
    assert made._UniffiFfiConverterBytes.lower is fast


def test_a_binding_that_copies_is_left_alone():
    made = module(walks=False)
    own = made._UniffiFfiConverterBytes.lower
    assert copying.install(made) == "not needed"
    assert made._UniffiFfiConverterBytes.lower is own


@pytest.mark.parametrize("made", [module(walks=True, header=b"v2"), SimpleNamespace()])
def test_a_binding_that_is_built_differently_is_left_alone(made):
    own = getattr(made, "_UniffiFfiConverterBytes", None)
    lower = own and own.lower
    assert copying.install(made) == "not understood"
    assert (own and own.lower) is lower


def test_the_installed_binding_needs_it_or_is_fixed():
    binding.slatedb()
    assert binding.copies() in ("replaced", "not needed")


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "slatedb.uniffi", None)
    with pytest.raises(ConfigError, match=r"pip install 'holdfast\[slatedb\]'"):
        binding.slatedb.__wrapped__()


def test_an_old_package_says_what_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "slatedb.uniffi", ModuleType("slatedb.uniffi"))
    with pytest.raises(ConfigError, match=r"too old, 0\.17 is needed"):
        binding.slatedb.__wrapped__()
