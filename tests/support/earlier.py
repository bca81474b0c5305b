from pathlib import Path


def as_earlier(folder: Path) -> None:
    """Gives a folder's own files, or those of an output that was begun there, the names of earlier versions."""
    for path in folder.glob(".*.*"):
        path.rename(path.with_name(path.name[1:]))
