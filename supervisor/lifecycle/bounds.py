"""What others than admins may launch, or ask a plan of.

An engine runs as the daemon's user, so whoever chooses its code, its files or its model chooses
what that user does.

Looked at is what the client itself says: what a recipe says stands in the config, where an admin
put it. That holds for the recipe as it stands. Beside another model, engine or way to run it, the
recipe's own words are looked at as the client's; so they are beside a file of the client's.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import UNSET
from msgspec.structs import replace

from supervisor.contracts.config import AccessConfig, Config
from supervisor.contracts.engine import EngineId
from supervisor.contracts.instance import LaunchParams
from supervisor.engines.harmless import HARMLESS_ENV, Judged, judge
from supervisor.engines.registry import SPELLINGS
from supervisor.lifecycle.errors import Forbidden, NotDone
from supervisor.lifecycle.order import resolve, with_recipe
from supervisor.lifecycle.roots import Outside, inside
from supervisor.patience import Overdue, Patience

FREE_PORTS = 1024
"""A port below it is for whom the host trusts."""
RESOLVE_S = 10.0
"""For the links of a model's path, which may lie on a mount that hangs."""

_WIDEN = "an admin can list more there, put it into a recipe, or launch it"
_WHAT_IT_IS = ("engine", "model_path", "runtime", "docker_image", "binary", "command")
"""Members that make a recipe another launch than the one that an admin wrote down."""


async def within_bounds(params: LaunchParams, config: Config, looking: Patience) -> LaunchParams:
    """The same launch, its paths without a link that could be changed after they were looked at.

    Raises ``Forbidden`` for what takes the role admin, whatever ``resolve`` raises, and
    ``NotDone`` where a path cannot be followed in time.
    """
    order = resolve(params, config.recipes)  # a launch that makes no sense is told so first
    said, judged = params, _judged(params, config.access, order.engine)
    if judged.files or any(getattr(params, name) is not UNSET for name in _WHAT_IT_IS):
        said = with_recipe(params, config.recipes)
        judged = _judged(said, config.access, order.engine)
    if why := next(_beyond(said, params, config.access), None):
        raise Forbidden(why)
    if judged.beyond is not None:
        where = _not_in(f"access.args.{order.engine}")
        raise Forbidden(
            f"among the arguments {judged.beyond} is not known to be harmless and {where}"
        )
    if (
        order.port is not None
        and order.port < FREE_PORTS
        and not _by_recipe(order.port, params, config)
    ):
        raise Forbidden(
            f"port {order.port} takes the role admin, as all below {FREE_PORTS} do: "
            "leave it out, or use a recipe that has it"
        )
    args = list(said.extra_args or ())
    files = [args[position][start:] for position, start in judged.files]
    for path in files:
        if not path.startswith("/") or "," in path:  # engines split it there
            raise Forbidden(f"among the arguments {path!r} is not the absolute path of one file")
    paths = files if said.model_path is UNSET else [said.model_path, *files]
    if not paths:
        return params
    real = await _followed(paths, config.access.model_roots, looking)
    if said.model_path is not UNSET:
        params = replace(params, model_path=real.pop(0))
    for (position, start), path in zip(judged.files, real, strict=True):
        args[position] = args[position][:start] + path
    return replace(params, extra_args=tuple(args)) if judged.files else params


def _judged(said: LaunchParams, access: AccessConfig, engine: EngineId) -> Judged:
    listed: tuple[str, ...] = getattr(access.args, engine)
    trusting = said.options is not UNSET and said.options.trust_remote_code is True
    return judge(SPELLINGS[engine], said.extra_args or (), listed, trusting=trusting)


def _beyond(said: LaunchParams, params: LaunchParams, access: AccessConfig) -> Iterator[str]:
    """What but arguments takes the role admin in a launch, and how it could be allowed."""
    if access.recipes is not UNSET and (params.recipe or "") not in access.recipes:
        allowed = ", ".join(access.recipes) or "none"
        yield f"only recipes of `access.recipes` may be launched, which are: {allowed}"
    if said.command is not UNSET:
        yield "`command` takes the role admin: use a recipe that has it"
    if said.binary is not UNSET and said.binary not in access.binaries:
        yield f"`binary` {said.binary} is {_not_in('access.binaries')}"
    if said.docker_image and not _matches(said.docker_image, access.images):
        yield f"the image {said.docker_image} is {_not_in('access.images')}"
    for name in said.env or ():
        if name not in HARMLESS_ENV and not _matches(name, access.env):
            yield f"the variable {name} is not known to be harmless and {_not_in('access.env')}"


def _by_recipe(port: int, params: LaunchParams, config: Config) -> bool:
    """The recipe has this very port, whatever the client says besides."""
    if params.recipe is UNSET:
        return False
    recipe = LaunchParams(name=params.name, recipe=params.recipe)
    return resolve(recipe, config.recipes).port == port


def _not_in(key: str) -> str:
    return f"not in `{key}`: {_WIDEN}"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


async def _followed(paths: Sequence[str], roots: tuple[str, ...], looking: Patience) -> list[str]:
    try:
        return await looking.run(_all_inside, paths, roots, within_s=RESOLVE_S)
    except Outside as outside:
        named = ", ".join(roots) or "which names none"
        raise Forbidden(
            "models lie below the directories of `access.model-roots` "
            f"({named}), and {outside}: {_WIDEN}"
        ) from None
    except Overdue as error:
        raise NotDone(
            f"{paths[0]} could not be looked at; does a file system hang? ({error})"
        ) from None


def _all_inside(paths: Sequence[str], roots: tuple[str, ...]) -> list[str]:
    return [inside(path, roots) for path in paths]
