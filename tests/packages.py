"""Packages of others, as pip leaves them behind: a module, and what it registers as entry points."""

from pathlib import Path


def install(folder: Path, package: str, source: str, group: str, **entries: str) -> None:
    """Put a package of one module into a folder, which is to be on Python's path.

    Args:
        folder: where it goes.
        package: its name, and that of its module.
        source: the module.
        group: the group of its entry points.
        entries: by name where each leads.
    """
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
