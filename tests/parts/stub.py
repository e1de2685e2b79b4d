"""The stub engine as a binary: `stub_binary(tmp_path)` is a path that can be launched."""

import os
import sys
from pathlib import Path

STUB_ENGINE = Path(__file__).with_name("stub_engine.py")


def stub_binary(folder: Path, name: str = "llama-server", **knobs: str | float) -> str:
    """Write an executable `name` into `folder`, with knobs preset (`exit_code=3`, `load=0.5`).

    Its interpreter is named outright and skips `site`: what of a launch's environment reaches a
    Python engine still shows, and nothing of this test run's venv does.
    """
    presets = {knob.replace("_", "-"): str(value) for knob, value in knobs.items()}
    path = folder / name
    path.write_text(
        f"#!{interpreter()} -S\n"
        "import sys\n"
        f"sys.path.insert(0, {str(STUB_ENGINE.parent)!r})\n"
        "from stub_engine import main\n"
        "del sys.path[0]\n"
        f"main({presets!r})\n"
    )
    path.chmod(0o755)
    return str(path)


def interpreter() -> str:
    """The Python below this venv: started by itself, it needs no search for its home."""
    base: str | None = getattr(sys, "_base_executable", None)
    return os.path.realpath(base or sys.executable)
