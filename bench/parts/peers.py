"""Where the peers come from: supervisord and circus, pinned, from an environment of their own; s6
from the system, as Debian's packages ``s6`` and ``execline`` have it.

Apart because the Supervisor project owns the import name that we use too. It lies in the user's
cache, is made at the first run that wants a peer, and is kept. Where it cannot be made (no
network), figures go without their peers and the report says why.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

S6_PROGRAMS = ("s6-svscan", "s6-supervise", "execlineb")
PINS = ("supervisor==4.3.0", "circus==0.19.0")
INSTALL_S = 180
END_S = 2.0


class Peers:
    """Installed when first asked for; asked once."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._wanted = wanted
        self._reasons: dict[str, str] = {}
        self._folder: Path | None = None

    @property
    def missing(self) -> str | None:
        """Which of those that were asked for are not there, and why."""
        if not self._wanted:
            return "not asked for"
        return "; ".join(self._reasons.values()) or None

    def bin(self, program: str) -> str | None:
        """The path of a Python peer's program, or ``None``; then ``missing`` says why."""
        if self._folder is None and self._wanted and "python" not in self._reasons:
            self._folder = self._install()
        return None if self._folder is None else str(self._folder / "bin" / program)

    def s6(self) -> bool:
        """Whether s6 is installed; where it is not, ``missing`` says so."""
        absent = [program for program in S6_PROGRAMS if shutil.which(program) is None]
        if absent and self._wanted:
            self._reasons["s6"] = f"no {absent[0]}: apt-get install s6 execline"
        return self._wanted and not absent

    def _install(self) -> Path | None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "engine-supervisor" / f"bench-peers-{'-'.join(PINS)}"
        done = folder / "installed"
        if done.exists():
            return folder
        commands = (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin" / "pip"), "install", "--quiet", *PINS],
        )
        for command in commands:
            try:
                subprocess.run(
                    command, capture_output=True, check=True, text=True, timeout=INSTALL_S
                )
            except subprocess.CalledProcessError as error:
                said = _last_line(error.stderr)
                self._reasons["python"] = f"{' '.join(command[-3:])}: {said}"
                return None
            except (OSError, subprocess.TimeoutExpired) as error:
                self._reasons["python"] = f"the peers' environment could not be made: {error}"
                return None
        done.touch()
        return folder


def environment() -> dict[str, str]:
    """For a peer's process: a ``PYTHONPATH`` of ours would put our ``supervisor`` before theirs."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def end(process: subprocess.Popen[bytes]) -> None:
    """End a peer's daemon. After its children were killed, circus takes more than 15 s to leave;
    what it then leaves behind is found by the stage's sweep.
    """
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it failed without a word"])[-1][:200]
