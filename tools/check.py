"""The static checks: style, format, types, direction of imports, documentation, security.

All run, some at once; the exit code says whether one failed. Known weaknesses of dependencies are looked up in the
network: without one that check is skipped.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

CHECKS = {  # in the order in which they start: what takes long goes first
    "types": ["mypy"],
    "audit": ["pip-audit", "-r", "requirements/dev.txt", "--disable-pip", "--require-hashes", "--progress-spinner=off"],
    "docs": ["mkdocs", "build", "--strict", "--quiet"],
    "security": ["bandit", "-q", "-ll", "-r", "src", "tools"],
    "imports": ["lint-imports"],
    "style": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
}
_AT_ONCE = 3  # two processors, and an audit that waits for the network
_PATIENCE_SECONDS = 600.0
_AUDIT_SECONDS = 120.0  # a network that does not answer
_FOUND = "known vulnerabilit"  # "Found 2 known vulnerabilities"; without any: "No known vulnerabilities found"
_UNKNOWN = "could not be audited"


def passes(name: str, command: list[str]) -> bool:
    """Run one check; its output is shown only when it fails."""
    started = time.monotonic()
    state, output = _run(name, command)
    told = f"{name:8} {time.monotonic() - started:5.1f} s  {state}"
    print(f"{told}\n{output}" if output else told, flush=True)
    return not output


def _run(name: str, command: list[str]) -> tuple[str, str]:
    """What to say of it, and its output where it failed."""
    program = BIN / command[0]
    if not program.exists():
        return f"skipped: {command[0]} is not installed here", ""
    try:
        done = subprocess.run(
            [str(program), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False,
            timeout=_AUDIT_SECONDS if name == "audit" else _PATIENCE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ("skipped: there was no answer in time", "") if name == "audit" else ("FAILED", "it did not end")
    said = done.stdout + done.stderr
    if name == "audit":
        return judged_audit(done.returncode, said)
    return ("ok", "") if done.returncode == 0 else ("FAILED: " + " ".join(command), said)


def judged_audit(code: int, said: str) -> tuple[str, str]:
    """Only what was found counts: an audit that reached nobody has found nothing out."""
    if code and "Found" in said and _FOUND in said:
        return "FAILED: dependencies with known weaknesses", said
    if code or _UNKNOWN in said:
        return "skipped: what is known of the dependencies cannot be looked up without a network", ""
    return "ok", ""


def main() -> None:
    wanted = sys.argv[1:] or list(CHECKS)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = list(pool.map(lambda name: passes(name, CHECKS[name]), wanted))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
