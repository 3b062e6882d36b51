"""`python -m chaos.disk RUN SETTINGS`: a run on a small disk, in a namespace where one can be mounted."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from ..runs.disk import here
from ..settings import Settings

if __name__ == "__main__":
    verdict = asyncio.run(here(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Settings)))
    sys.stdout.buffer.write(msgspec.json.encode(verdict))
