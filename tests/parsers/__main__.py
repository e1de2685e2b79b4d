"""``python -m tests.parsers [ENGINE...]``: puts each engine's own parser where it is missing, and
lets it read all golden plans. Ends with 1 where one was read otherwise than meant."""

import sys
from collections.abc import Callable, Mapping

from examples.get_engine import CannotGetError
from supervisor.contracts.engine import ENGINE_IDS, EngineId
from tests.engines import golden
from tests.parsers import having
from tests.parsers.asking import Parser, ask, misread, strange_flags

PARSERS: Mapping[EngineId, Callable[..., Parser]] = {
    "vllm": having.vllm,
    "sglang": having.sglang,
    "llamacpp": having.llamacpp,
    "mlx": having.mlx,
    "exllamav3": having.exllamav3,
}


def check(engine: EngineId) -> bool:
    """Whether all is well, or could not be looked at for want of the parser; says which."""
    try:
        parser = PARSERS[engine](install=True)
    except (having.AbsentError, CannotGetError) as absent:
        print(f"{engine}: not checked: {absent}")
        return True
    told = ask(parser)
    wrong = {path.stem: misread(path, told) for path in golden.cases(engine)}
    problems = [f"{name}: {problem}" for name, problem in wrong.items() if problem]
    problems += strange_flags(engine, told)
    print(f"{engine} {told.version}: {len(wrong)} plans read, {len(problems)} problems", flush=True)
    for problem in problems:
        print(f"    {problem}")
    return not problems


def main() -> int:
    wanted = [engine for engine in ENGINE_IDS if not sys.argv[1:] or engine in sys.argv[1:]]
    fine = [check(engine) for engine in wanted]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
