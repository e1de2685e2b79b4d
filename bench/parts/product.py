"""The Python that ours is measured with: one with what a user installs, and no more.

A developer's environment has packages that change the figures: structlog imports rich where it
finds it (7 MB, 50 ms). So the locked requirements lie in an environment of their own in the user's
cache, and the checkout is on its path as an installed package would be.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
INSTALL_S = 180


class Product:
    """This Python, until ``prepare`` has found better."""

    python = sys.executable

    def prepare(self) -> str | None:
        """Make that Python, or find it made. Where it cannot be, say why."""
        lock = CHECKOUT / "requirements.lock"
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        key = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
        folder = cache / "engine-supervisor" / f"bench-product-{version}-{key}"
        python, done = str(folder / "bin" / "python"), folder / "installed"
        commands = (
            (sys.executable, "-m", "venv", "--clear", str(folder)),
            (python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)),
        )
        if not done.exists():
            try:
                for command in commands:
                    subprocess.run(command, capture_output=True, check=True, timeout=INSTALL_S)
            except (OSError, subprocess.SubprocessError) as error:
                return f"ours is measured with the developer's packages: {error}"
            done.touch()
        self.python = python
        return None


PRODUCT = Product()


def product_environment() -> dict[str, str]:
    """For its processes, instead of ``PYTHON*`` variables of ours."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PYTHONPATH": str(CHECKOUT)}
