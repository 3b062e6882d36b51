"""The static checks: style, format, types, direction of imports. All run; the exit code says whether one failed."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "style": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}


def passes(name: str, command: list[str]) -> bool:
    """Run one check; its output is shown only when it fails."""
    started = time.monotonic()
    done = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    state = "ok" if done.returncode == 0 else "FAILED: " + " ".join(command)
    print(f"{name:8} {time.monotonic() - started:5.1f} s  {state}", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


def main() -> None:
    wanted = sys.argv[1:] or list(CHECKS)
    results = [passes(name, CHECKS[name]) for name in wanted]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
