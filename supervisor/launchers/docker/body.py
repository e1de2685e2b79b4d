"""A launch plan in the words of the engine API: the body of a create request. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from supervisor.contracts.config import DockerConfig
from supervisor.contracts.engine import DeviceRequest, LaunchPlan, Mount
from supervisor.launchers.base import SpawnTicket

LOOPBACK = "127.0.0.1"


def create_body(
    plan: LaunchPlan, ticket: SpawnTicket, labels: Mapping[str, str], config: DockerConfig
) -> dict[str, Any]:
    """What to create. The plan's image is given.

    An init process, for most engines take no signal as process 1 of a container, and nobody would
    reap their orphans. No restart policy: who restarts an engine is the supervisor alone. The
    image's own health check is off: it asks on ports of its own, and starts a process each time.
    """
    host = config.network == "host"
    body: dict[str, Any] = {
        "Image": plan.image or "",
        "Cmd": list(plan.argv),
        "Env": [f"{name}={value}" for name, value in sorted(ticket.env.items())],
        "Labels": dict(labels),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "Init": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {
                "Type": "json-file",
                "Config": {
                    "max-size": str(config.log_max_bytes),
                    "max-file": str(config.log_files),
                },
            },
            "Mounts": [_mount(mount) for mount in plan.mounts],
            "NetworkMode": "host" if host else "bridge",
        },
    }
    settings = body["HostConfig"]
    if not host:
        body["ExposedPorts"] = {f"{port.container}/tcp": {} for port in plan.ports}
        settings["PortBindings"] = {
            f"{port.container}/tcp": [
                {"HostIp": plan.bind_host or LOOPBACK, "HostPort": str(port.host)}
            ]
            for port in plan.ports
        }
    if plan.workdir is not UNSET:
        body["WorkingDir"] = plan.workdir
    if plan.shm_bytes is not UNSET:
        settings["ShmSize"] = plan.shm_bytes
    if plan.ulimits is not UNSET:
        settings["Ulimits"] = [
            {"Name": name, "Soft": limit, "Hard": limit} for name, limit in plan.ulimits.items()
        ]
    if plan.groups is not UNSET:
        settings["GroupAdd"] = [str(group) for group in plan.groups]
    if plan.device_requests is not UNSET:
        settings["DeviceRequests"] = [_request(request) for request in plan.device_requests]
    if plan.device_nodes is not UNSET:
        settings["Devices"] = [
            {"PathOnHost": node, "PathInContainer": node, "CgroupPermissions": "rwm"}
            for node in plan.device_nodes
        ]
    if plan.security_opts is not UNSET:
        settings["SecurityOpt"] = list(plan.security_opts)
    return body


def _mount(mount: Mount) -> dict[str, Any]:
    """As a mount and not as a bind: a path that is not there is refused, and not made."""
    kind = "bind" if mount.from_.startswith("/") else "volume"
    return {"Type": kind, "Source": mount.from_, "Target": mount.to, "ReadOnly": mount.read_only}


def _request(request: DeviceRequest) -> dict[str, Any]:
    """Ids without a count: the two exclude each other, and the count is not even named."""
    body: dict[str, Any] = {"Driver": request.driver, "DeviceIDs": list(request.device_ids)}
    if request.capabilities:
        body["Capabilities"] = [list(one) for one in request.capabilities]
    return body
