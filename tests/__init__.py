"""The tests, in the folders of what they test. Each folder is a package: the same name may be in several."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
