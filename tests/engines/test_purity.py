"""Planning looks at nothing but its argument: no file, socket, process, clock or environment."""

import ast
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

import supervisor.engines
from supervisor.engines.devices import apply_devices
from supervisor.engines.environment import base_environment
from supervisor.engines.picking import lease_violation
from supervisor.engines.registry import ENGINES, support_of
from supervisor.engines.secrets import mask_argv
from tests.engines import golden
from tests.engines.requests import ACCELERATORS

PURE = {
    *("ast", "collections", "dataclasses", "functools", "math", "msgspec", "posixpath", "re"),
    *("typing", "supervisor.contracts", "supervisor.engines", "prometheus_client.parser"),
}
CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
WATCHED = (
    *("open", "os.", "socket.", "subprocess.", "shutil.", "glob.", "tempfile.", "fcntl."),
    *("import", "ctypes.", "pty.", "signal.", "mmap.", "exec", "compile"),
)


class _Guard:
    """One audit hook for the process, for none can be taken off again; armed per thread."""

    def __init__(self) -> None:
        self.armed: int | None = None
        sys.addaudithook(self)

    def __call__(self, event: str, _: tuple[object, ...]) -> None:
        if self.armed == threading.get_ident() and event.startswith(WATCHED):
            self.armed = None
            raise AssertionError(f"not pure: {event}")


_guard: list[_Guard] = []


class _NoEnvironment(dict[str, str]):
    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("not pure: reads the environment")

    __getitem__ = get = __contains__ = __iter__ = keys = items = values = copy = _refuse


def _no_clock() -> NoReturn:
    raise AssertionError("not pure: reads a clock")


@contextmanager
def nothing_to_look_at(patch: pytest.MonkeyPatch) -> Iterator[None]:
    if not _guard:
        _guard.append(_Guard())
    with patch.context() as patched:
        for name in CLOCKS:
            patched.setattr(time, name, _no_clock)
        patched.setattr(os, "environ", _NoEnvironment())
        _guard[0].armed = threading.get_ident()
        try:
            yield
        finally:
            _guard[0].armed = None


def test_the_whole_way_to_a_plan_is_pure(monkeypatch: pytest.MonkeyPatch) -> None:
    for launch in [golden.launch_of(path) for path in golden.cases()]:
        spec = ENGINES[launch.engine]
        with nothing_to_look_at(monkeypatch):
            support_of(launch.engine, launch.host)
            spec.address(launch.extra_args, launch.env)
            spec.explain(launch)
            lease_violation(launch.extra_args, launch.env, launch.devices, ACCELERATORS)
            plan = apply_devices(spec.plan(launch), ACCELERATORS)
            base_environment({"PATH": "/bin"}, launch.binary)
            mask_argv(plan.argv)


@pytest.mark.parametrize(
    "impure",
    [
        lambda: open("/etc/hostname").close(),
        lambda: os.listdir("/"),
        lambda: subprocess.run(["true"], check=False),
        lambda: socket.socket().close(),
        lambda: time.time() > 0,
        lambda: time.monotonic_ns() > 0,
        lambda: os.environ.get("HOME"),
        lambda: os.environ["HOME"],
        lambda: os.getenv("HOME"),
    ],
)
def test_the_guard_sees_what_it_is_there_for(
    impure: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AssertionError, match="not pure"), nothing_to_look_at(monkeypatch):
        impure()


def test_nothing_impure_is_even_imported() -> None:
    for source in Path(supervisor.engines.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            match node:
                case ast.ImportFrom(module=str(module)):
                    names = [module]
                case ast.Import(names=aliases):
                    names = [alias.name for alias in aliases]
                case _:
                    continue
            for name in names:
                roots = {name, name.split(".")[0], ".".join(name.split(".")[:2])}
                assert roots & PURE, f"{source.name} imports {name}"
