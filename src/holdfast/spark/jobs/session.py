"""A Spark session for the jobs, with what is missing said in a sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...stores.opening import redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17  # that PySpark 4 runs on
_OF_SESSIONS = {"spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.maxRecordsPerBatch": "2000"}
_DEFAULTS = {
    **_OF_SESSIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def session(
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    name: str = "holdfast",
    remote: str | None = None,
) -> SparkSession:
    """The session that runs already, or a new one; ConfigError says what is missing.

    `remote` is a server of Spark Connect (`sc://host:15002`), as is SPARK_REMOTE when no master is named.
    """
    if remote and master:
        raise ConfigError("remote and master: a Spark Connect server has its own master; give one of the two")
    try:
        from pyspark.sql import SparkSession, is_remote
    except ImportError as error:
        raise ConfigError('the pipeline needs Spark: pip install "holdfast[spark]"') from error
    if master and not is_remote():
        os.environ.pop("SPARK_REMOTE", None)  # PySpark would follow it all the same
    remote = remote or os.environ.get("SPARK_REMOTE")
    if remote:
        return _connected(remote, conf or {})
    running = SparkSession.getActiveSession()
    if running is None and (lacking := missing()):
        raise ConfigError(lacking)
    settings = {**_DEFAULTS, **(conf or {})}
    chosen = master or settings.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    level = settings.pop("spark.log.level")  # as a setting Spark would say that it was set
    if chosen.startswith("local"):
        _at_home(settings)
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in settings.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    made.sparkContext.setLogLevel(level)
    return made


def _connected(remote: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of Spark Connect. What only a driver can be told is the server's own."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for key, value in {**_OF_SESSIONS, **conf}.items():
        builder = builder.config(key, value)
    try:
        made: SparkSession = builder.getOrCreate()
        made.version  # noqa: B018 - asks the server
    except ImportError as error:
        raise ConfigError(f'Spark Connect needs more packages: pip install "pyspark[connect]" ({error})') from error
    except PySparkException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"there is no server of Spark Connect at {redact(remote)}: {said}") from error
    return made


def _at_home(settings: dict[str, str]) -> None:
    """On one machine: executors have this very Python, nothing listens to the network, and Spark starts quietly."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark would take whatever python3 is
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" not in java:
        quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
        settings["spark.driver.extraJavaOptions"] = f"{java} {quiet}".strip()


def missing() -> str | None:
    """What the machine lacks to run Spark, in a sentence; None when it lacks nothing."""
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError:
        return 'PySpark is not installed: pip install "holdfast[spark]"'
    java = _java()
    if java is None:
        return f"Spark needs Java {OLDEST_JAVA} or newer and there is none: install one, or set JAVA_HOME"
    version = _version(java)
    if version is not None and version < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer; {java} is {version}"
    return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (path := Path(home) / "bin" / "java").exists():
        return str(path)
    return shutil.which("java")


def _version(java: str) -> int | None:
    """The major version, or None when it does not say."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None
