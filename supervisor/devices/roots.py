"""Where the kernel's own files are looked for, and how they are read.

The roots are parameters, so that a test can build a host with any hardware. Each of these files may
be missing, empty, or refuse to be read, and then its value is not known: ``None``.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The places that describe a host."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    etc: Path = Path("/etc")
    usr: Path = Path("/usr")

    @classmethod
    def under(cls, folder: Path) -> "Roots":
        """The same places below a folder, as a test builds a host."""
        return cls(**{name: folder / name for name in ("sys", "proc", "dev", "etc", "usr")})


HOST = Roots()


def text(path: Path) -> str | None:
    """The file's text without the blanks (and device trees' NULs) around it; never empty."""
    try:
        return path.read_text(errors="replace").strip(" \n\t\0") or None
    except OSError:
        return None


def number(path: Path) -> int | None:
    """A file that holds one number, decimal or ``0x`` hexadecimal."""
    try:
        return int(text(path) or "", 0)
    except ValueError:
        return None


def scaled(path: Path, unit: float) -> float | None:
    """A number in the kernel's unit, such as thousandths of a degree, as one in ours."""
    value = number(path)
    return None if value is None else value / unit


def listing(path: Path, pattern: str = "*") -> list[Path]:
    """What lies in a folder, in an order that does not change; nothing where it cannot be read."""
    try:
        return sorted(path.glob(pattern), key=lambda it: (len(it.name), it.name))
    except OSError:
        return []
