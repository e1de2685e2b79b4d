"""``engine.plan``: what a launch would run, what it would not do, and why it would be refused."""

from msgspec.structs import replace

from supervisor.contracts.engine import LaunchPlan
from supervisor.contracts.failure import AlreadyRunning, LaunchFailure
from supervisor.contracts.instance import LaunchParams
from supervisor.contracts.rpc import PlanReply
from supervisor.failures import sentence
from supervisor.lifecycle.booking import BookingDesk
from supervisor.lifecycle.errors import LaunchRefused, Unavailable
from supervisor.lifecycle.fitting import refuse_misfit
from supervisor.lifecycle.house import House
from supervisor.lifecycle.order import Order
from supervisor.lifecycle.preflight import Problem
from supervisor.lifecycle.prepare import Sought
from supervisor.lifecycle.redaction import Redactor
from supervisor.patience import Overdue

REDACT_S = 5.0
"""Milliseconds, but for words that were made to be looked through slowly."""


async def planned(
    house: House, desk: BookingDesk, order: Order, occupied: AlreadyRunning | None
) -> PlanReply:
    """Everything short of doing it. ``occupied`` says why its name cannot be had.

    What stands in the way of the launch is told beside a plan that is as complete as it can be;
    only where the engine does not run here at all is there none. Raises ``LaunchRefused``.
    """
    try:
        found = await desk.look(order)
    except Problem as problem:
        raise LaunchRefused(problem.failure) from None
    preparation = desk.preparation(order, found)
    refusal: LaunchFailure | None = occupied
    try:
        devices = desk.devices(order, found).devices
    except Problem as problem:
        devices = desk.at_best(order, found)
        refusal = refusal or problem.failure
    port = order.port or house.config.ports.first
    try:
        port = desk.port(order, found)
        await preparation.port(port)
    except Problem as problem:
        refusal = refusal or problem.failure
    binary, version = order.binary or found.spec.default_binary, None
    model = order.model_path
    try:
        binary, version = await preparation.binary()
        model = await preparation.model()
    except Problem as problem:
        refusal = refusal or problem.failure
    preparation.check_lease(devices)
    sought = Sought(binary=binary, version=version, model=model)
    try:
        plan = await preparation.plan(devices, port, sought)
    except Problem as problem:
        raise LaunchRefused(problem.failure) from None
    fit = await preparation.fit(plan, model)
    try:
        refuse_misfit(fit, len(devices), house.config.devices)
    except Problem as problem:
        refusal = refusal or problem.failure
    explained = preparation.explain(devices, port, sought)
    try:
        shown = await house.looking.run(_redacted, order.params, plan, within_s=REDACT_S)
    except Overdue as error:
        raise Unavailable(f"the plan cannot be shown: {error}") from None
    return PlanReply(
        plan=shown,
        dropped=explained.dropped,
        notes=explained.notes,
        fit=fit,
        refusal=None if refusal is None else sentence(refusal),
    )


def _redacted(params: LaunchParams, plan: LaunchPlan) -> LaunchPlan:
    redactor = Redactor.of(params, plan)
    return replace(plan, argv=redactor.argv(plan.argv), env=redactor.masked(plan))
