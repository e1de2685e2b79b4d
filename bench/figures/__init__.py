"""The figures there are, in the order of the table. A new one is one new file and one line here."""

from bench.figure import Figure
from bench.figures import (
    adoption,
    cli,
    docker,
    events,
    exit_bus,
    exit_socket,
    fit,
    hung,
    idle,
    launch,
    plan,
    ready,
    rpc,
    spawn,
    squatter,
    start,
    stop,
    subscribers,
)

FIGURES: dict[str, Figure] = {
    module.FIGURE.name: module.FIGURE
    for module in (
        launch,
        spawn,
        ready,
        exit_bus,
        exit_socket,
        hung,
        stop,
        adoption,
        start,
        idle,
        rpc,
        cli,
        events,
        subscribers,
        plan,
        fit,
        docker,
        squatter,
    )
}
