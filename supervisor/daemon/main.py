"""The ``engined`` program: arguments, configuration, and exit codes."""

import argparse
import faulthandler
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import structlog

from supervisor import __version__
from supervisor.contracts.config import Config, ConfigError, parse_config
from supervisor.contracts.paths import Paths, resolve_paths
from supervisor.daemon.activation import Activation, take
from supervisor.daemon.cgroup import step_aside
from supervisor.daemon.leaving import GRACE_S, end_within
from supervisor.daemon.logs import complain, configure_logging, open_standard_fds
from supervisor.daemon.run import run
from supervisor.instances.durable import StoreError
from supervisor.instances.ports import overlaps_ephemeral
from supervisor.instances.state_dir import StateDirBusy, lock_state_dir
from supervisor.rpc.socket import SocketError

EX_CONFIG = 78
EX_UNAVAILABLE = 69

_SET_SOCKET = (
    "it is where clients connect; set `socket` in the config, ENGINE_SUPERVISOR_SOCKET, or "
    "XDG_RUNTIME_DIR to a directory of yours"
)
_SET_STATE_DIR = (
    "it is state-dir, for the records of what runs; set `state-dir` in the config, "
    "ENGINE_SUPERVISOR_STATE_DIR, or XDG_STATE_HOME"
)
_SET_LOG_DIR = (
    "it is log-dir, for the logs of engines and the events; set `log-dir` in the config or "
    "ENGINE_SUPERVISOR_LOG_DIR"
)
_EPILOG = """\
exit codes:
  0   ended by SIGTERM or SIGINT; engines are left running
  1   anything else
  69  the socket or the state directory cannot be had, as where another daemon has it
  78  the configuration, or a directory that it names, cannot be used

The paths come from the environment, else the config, else systemd's unit, else XDG:
  socket     ENGINE_SUPERVISOR_SOCKET, `socket`, $RUNTIME_DIRECTORY/engined.sock,
             $XDG_RUNTIME_DIR/engine-supervisor/engined.sock,
             /run/engine-supervisor/engined.sock
  state-dir  ENGINE_SUPERVISOR_STATE_DIR, `state-dir`, $STATE_DIRECTORY,
             $XDG_STATE_HOME/engine-supervisor, ~/.local/state/engine-supervisor
  log-dir    ENGINE_SUPERVISOR_LOG_DIR, `log-dir`, $LOGS_DIRECTORY, `log` in state-dir
"""


log = structlog.get_logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run in the foreground until SIGTERM or SIGINT. Engines are left running.

    Exits with 0 after a clean end, 69 when another daemon is in the way or the socket cannot be
    made, 78 for a configuration that cannot be used, 1 for anything else.
    """
    options = _arguments(argv)
    open_standard_fds()
    activation = take(os.environ)
    try:
        config = _load(options.config)
        paths = resolve_paths(os.environ, config)
        _make_directories(paths)
    except ConfigError as error:
        complain(str(error))
        return EX_CONFIG
    sink = configure_logging(config.log_level)
    step_aside()
    if activation.watchdog_s is not None:
        faulthandler.enable()  # the watchdog's SIGABRT then says where the loop was stuck
    code = 1
    try:
        code = _serve(
            partial(run, reread=partial(_load, options.config), log_sink=sink),
            config,
            paths,
            activation,
        )
    finally:
        end_within(GRACE_S, code)
    return code


def _serve(
    serve: Callable[[Config, Paths, Activation], Awaitable[None]],
    config: Config,
    paths: Paths,
    activation: Activation,
) -> int:
    """Until it is told to end, or cannot go on; the exit code."""
    try:
        with lock_state_dir(Path(paths.state_dir)):
            anyio.run(serve, config, paths, activation, backend="asyncio")
    except (StateDirBusy, SocketError, StoreError) as error:
        socket = isinstance(error, SocketError) and isinstance(error.__cause__, OSError)
        complain(f"{error}{f'; {_SET_SOCKET}' if socket else ''}")
        return EX_UNAVAILABLE
    except (ExceptionGroup, OSError) as error:
        if not isinstance(cause := _first(error), StoreError):
            log.exception("the daemon ended")
        complain(str(cause))
        return EX_UNAVAILABLE if isinstance(cause, StoreError) else 1
    return 0


def _first(error: Exception) -> Exception:
    """What task groups wrapped up."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="engined",
        description="Supervises inference engines on this host.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML; defaults without one")
    parser.add_argument("--version", action="version", version=f"engined {__version__}")
    return parser.parse_args(argv)


def _load(path: Path | None) -> Config:
    if path is None:
        return Config()
    try:
        if path.exists() and not path.is_file():
            raise ConfigError("it is no ordinary file")
        config = parse_config(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if overlaps_ephemeral(config.ports.first, config.ports.last):
        raise ConfigError(
            f"{path}: ports: {config.ports.first} to {config.ports.last} reaches into the range "
            "from which the kernel picks ports for outgoing connections"
        )
    return config


def _make_directories(paths: Paths) -> None:
    """Raises ``ConfigError``, which says what a path was for and what sets another one."""
    for path, mode, hint in (
        (paths.state_dir, 0o700, _SET_STATE_DIR),
        (paths.log_dir, 0o750, _SET_LOG_DIR),
    ):
        try:
            os.makedirs(path, mode=mode, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make {path}: {error.strerror}; {hint}") from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"cannot write in {path}; {hint}")
