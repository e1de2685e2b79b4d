"""A program for a unit: leaves the pidfd of a process with systemd, and says what it finds there.

At its first start it starts that process; later ones say how it is. All is said in the status.
"""

import os
import signal
import subprocess

from supervisor.daemon.activation import take
from supervisor.daemon.cgroup import own_cgroup_root, step_aside
from supervisor.daemon.notify import Notifier
from supervisor.daemon.unit import Unit
from supervisor.launchers.process.pidfd import has_ended, take_exit

NAME = "engine-0123456789abcdef"


def main() -> None:
    activation = take(os.environ)
    step_aside()
    root = own_cgroup_root("0123456789abcdef")
    unit = Unit(activation)
    if NAME in unit.fds.stored:
        fd = unit.fds.stored.pop(NAME)
        text = f"exit: {take_exit(fd)}" if has_ended(fd) else "it lives"
        if has_ended(fd):
            unit.fds.drop(NAME)
    else:
        with open("/dev/null", "r+") as null:
            child = subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, stderr=null)
        unit.fds.keep(NAME, os.pidfd_open(child.pid))
        text = f"{child.pid} {root}"
    Notifier(activation.notify_socket).send("READY=1", f"STATUS={text}")
    signal.pause()


main()
