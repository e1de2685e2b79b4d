"""How a container of ours is known: by labels that it was created with, never by its name alone."""

from collections.abc import Mapping

PREFIX = "engine-supervisor."
INSTANCE = PREFIX + "instance"
NONCE = PREFIX + "nonce"
SUPERVISOR = PREFIX + "supervisor"
DEVICES = PREFIX + "devices"


def container_name(instance: str) -> str:
    """Docker wants two characters and more, and an instance's name may have one."""
    return f"engine-supervisor-{instance}"


def marks(instance: str, nonce: str, supervisor: str, devices: tuple[str, ...]) -> dict[str, str]:
    """The labels of one launch's container."""
    return {
        INSTANCE: instance,
        NONCE: nonce,
        SUPERVISOR: supervisor,
        DEVICES: ",".join(devices),
    }


def is_of(labels: Mapping[str, str], nonce: str) -> bool:
    """Whether that very launch created it."""
    return labels.get(NONCE) == nonce


def is_ours(labels: Mapping[str, str], supervisor: str) -> bool:
    """Whether a launch of this supervisor created it, whichever."""
    return labels.get(SUPERVISOR) == supervisor and NONCE in labels


def devices_of(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(device for device in labels.get(DEVICES, "").split(",") if device)
