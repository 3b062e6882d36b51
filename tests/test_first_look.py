"""Threads that are the first to meet a type at the same moment."""

from __future__ import annotations

import subprocess
import sys

CRASHED = """
import sys, threading, msgspec
from types import ModuleType
{decoder}

sys.setswitchinterval(1e-6)
made = ModuleType("made")
sys.modules["made"] = made
made.Struct = msgspec.Struct
text = "class N%d(Struct):\\n    a: int\\nclass S%d(Struct):\\n    n: 'N%d'\\n    z: 'dict[str, int]'"
for n in range(400):
    exec(text % (n, n, n), made.__dict__)
for n in range(400):
    type, together = getattr(made, f"S{{n}}"), threading.Barrier(4)

    def run():
        together.wait()
        decoder(type)(b'{{"n": {{"a": 1}}, "z": {{"b": 2}}}}')

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads: each.start()
    for each in threads: each.join()
"""


def run(decoder: str) -> int:
    return subprocess.run([sys.executable, "-c", CRASHED.format(decoder=decoder)], check=False, timeout=120).returncode


def test_threads_that_meet_a_type_together_do_not_crash() -> None:
    assert run("from holdfast.codecs.json import decoder") == 0


def test_msgspec_alone_does() -> None:
    """Once this fails, `first_look` can go."""
    plain = "decoder = lambda type: msgspec.json.Decoder(type).decode"
    assert -11 in [run(plain) for _ in range(5)]
