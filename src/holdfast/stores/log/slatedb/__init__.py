"""The space of `slatedb+file://` and `slatedb+s3://`: a SlateDB database that one process at a time owns."""

from .location import Place, in_bucket, local, located, take_apart
from .space import SlateSpace

__all__ = ["Place", "SlateSpace", "in_bucket", "local", "located", "take_apart", "unmade"]


def unmade(place: Place) -> list[str]:
    """What opening a local place would have to make, in words."""
    made = [] if place.folder.exists() else [f"create the folder {place.folder}"]
    there = (place.folder / place.path / "manifest").exists()
    return made if there else [*made, f"create the SlateDB database {place.folder / place.path}"]
