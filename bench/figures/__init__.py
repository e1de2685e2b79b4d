"""The figures there are, in the order of the table. A new one is one new file and one line here."""

from bench.figure import Figure
from bench.figures import (
    cli,
    events,
    exit_bus,
    exit_socket,
    launch,
    plan,
    ready,
    rpc,
    spawn,
    squatter,
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
        rpc,
        cli,
        events,
        subscribers,
        plan,
        squatter,
    )
}
