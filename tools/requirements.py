"""Pin requirements/*.txt from requirements/*.in and pyproject.toml, with hashes, by the uv of the environment."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITH_DEV = ["--constraint=requirements/dev.txt", "--no-annotate"]  # what is in both has one version
SOURCES = {
    "dev": ["pyproject.toml", "requirements/run.in", "requirements/dev.in"],
    "run": ["pyproject.toml", "requirements/run.in", *WITH_DEV],
    "pythons": ["pyproject.toml", "requirements/pythons.in", *WITH_DEV],
    "suites": ["requirements/suites.in", *WITH_DEV],
    "dist": ["requirements/dist.in", *WITH_DEV],
    "spark-connect": ["requirements/spark-connect.in", *WITH_DEV],
    "spark-4.2": ["requirements/spark-4.2.in", "--no-annotate"],
    "uv": ["requirements/uv.in"],
    "peers": ["requirements/peers.in"],
    "peers-postgres": ["requirements/peers-postgres.in"],
    "peers-nats": ["requirements/peers-nats.in"],
    "peers-celery": ["requirements/peers-celery.in", *WITH_DEV],
}
OPTIONS = [
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-emit-index-url",
    "--quiet",
    "--custom-compile-command=make requirements",
]


def find_uv() -> str:
    """uv of the environment, or of the path."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    return found or sys.exit("pinning needs uv: run make setup, or pip install uv")


def main() -> None:
    uv = find_uv()
    for name, sources in SOURCES.items():
        command = [uv, "pip", "compile", *OPTIONS, *sys.argv[1:], f"--output-file=requirements/{name}.txt", *sources]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
