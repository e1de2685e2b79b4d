"""The ``engined`` program: arguments, configuration, and exit codes."""

import argparse
import faulthandler
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio

from supervisor import __version__
from supervisor.contracts.config import Config, ConfigError, parse_config
from supervisor.contracts.paths import Paths, resolve_paths
from supervisor.daemon.activation import take
from supervisor.daemon.cgroup import step_aside
from supervisor.daemon.logs import configure_logging
from supervisor.daemon.run import run
from supervisor.instances.ports import overlaps_ephemeral
from supervisor.instances.state_dir import StateDirBusy, lock_state_dir
from supervisor.rpc.socket import SocketError

EX_CONFIG = 78
EX_UNAVAILABLE = 69


def main(argv: Sequence[str] | None = None) -> int:
    """Run in the foreground until SIGTERM or SIGINT. Engines are left running.

    Exits with 0 after a clean end, 69 when another daemon is in the way, 78 for a configuration
    that cannot be used, 1 for anything else.
    """
    options = _arguments(argv)
    activation = take(os.environ)
    try:
        config = _load(options.config)
        paths = resolve_paths(os.environ, config)
        _make_directories(paths)
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"engined: {error}\n")
        return EX_CONFIG
    configure_logging(config.log_level)
    step_aside()
    if activation.watchdog_s is not None:
        faulthandler.enable()  # the watchdog's SIGABRT then says where the loop was stuck
    try:
        with lock_state_dir(Path(paths.state_dir)):
            anyio.run(run, config, paths, activation, backend="asyncio")
    except (StateDirBusy, SocketError) as error:
        sys.stderr.write(f"engined: {error}\n")
        return EX_UNAVAILABLE
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="engined", description="Supervises inference engines on this host."
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML; defaults without one")
    parser.add_argument("--version", action="version", version=f"engined {__version__}")
    return parser.parse_args(argv)


def _load(path: Path | None) -> Config:
    if path is None:
        return Config()
    try:
        config = parse_config(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if overlaps_ephemeral(config.ports.first, config.ports.last):
        raise ConfigError(
            f"{path}: ports: {config.ports.first} to {config.ports.last} reaches into the range "
            "from which the kernel picks ports for outgoing connections"
        )
    return config


def _make_directories(paths: Paths) -> None:
    os.makedirs(paths.state_dir, mode=0o700, exist_ok=True)
    os.makedirs(paths.log_dir, mode=0o750, exist_ok=True)
