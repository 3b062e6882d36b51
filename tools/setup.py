"""Make .venv with exactly the pinned requirements, and only when something changed.

setup.py run    what the command line and a folder need (`make run`)
setup.py dev    that, and everything for tests and checks

Runs before anything is installed, on whatever `python3` is: standard library only, and no syntax newer than 3.6.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "holdfast-setup"  # the part that is there, and what it was made from
PARTS = ("run", "dev")  # the later holds the earlier
WATCHED = ("requirements/uv.txt", "pyproject.toml")
OLDEST = (3, 11)
CANDIDATES = ("python3.13", "python3.12", "python3.11")


def pinned(part: str) -> str:
    return f"requirements/{part}.txt"


def fingerprint(part: str) -> str:
    """Of everything this part of the environment is made from."""
    digest = hashlib.sha256()
    for name in (*WATCHED, pinned(part)):
        digest.update((ROOT / name).read_bytes())
    return part + " " + digest.hexdigest()


def is_new_enough(python: str) -> bool:
    """Whether this interpreter runs (it may be missing, or a shim for nothing) and is one we support."""
    test = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST})"
    try:
        done = subprocess.run([python, "-c", test], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return False
    return done.returncode == 0


def interpreter() -> str:
    """The Python to build the environment with."""
    for python in (sys.executable, *CANDIDATES):
        if is_new_enough(python):
            return python
    sys.exit(
        "Holdfast needs Python 3.11 or newer with venv; python3 is {}.{} and none of {} was found. "
        "Install one of them (on Debian and Ubuntu also its python3.x-venv package) and run make again.".format(
            sys.version_info[0], sys.version_info[1], ", ".join(CANDIDATES)
        )
    )


def run(*command: str) -> None:
    """One step, shown; the first that fails ends the set-up."""
    print("+ " + " ".join(command), flush=True)
    code = subprocess.run(command, cwd=str(ROOT), check=False).returncode
    if code:
        sys.exit(code)


def is_there(part: str) -> bool:
    """Whether this part, or the one that holds it, is as it should be."""
    enough = [fingerprint(one) for one in PARTS[PARTS.index(part) :]]
    return STAMP.exists() and STAMP.read_text() in enough


def main(part: str) -> None:
    usable = is_new_enough(str(VENV / "bin" / "python"))
    if usable and is_there(part):
        return
    if not usable:
        run(interpreter(), "-m", "venv", "--clear", ".venv")
    STAMP.write_text("unfinished")
    run(".venv/bin/python", "tools/installing.py", pinned(part))
    STAMP.write_text(fingerprint(part))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "dev")
