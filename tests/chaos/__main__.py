"""``make chaos``: hundreds of dead daemons, and a table of what they must not have done."""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Outcome, campaign
from tests.chaos.nursery import Nursery


def main() -> int:
    options = _arguments()
    sys.stdout.write(f"seed {options.seed}\n")
    folder = tempfile.mkdtemp(prefix="chaos-")
    with Nursery() as nursery:
        outcome = campaign(
            Path(folder),
            nursery,
            kills=options.kills,
            engines=options.engines,
            seconds=options.seconds,
            seed=options.seed,
            on_kill=_progress if sys.stderr.isatty() else lambda outcome: None,
        )
    sys.stdout.write(table(outcome))
    if outcome.good:
        shutil.rmtree(folder)
    else:
        sys.stdout.write(f"  what is left of it lies in {folder}\n")
    return 0 if outcome.good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of the daemon (default 500)")
    parser.add_argument("--engines", type=int, default=20, help="at once, one device each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    return parser.parse_args()


def _progress(outcome: Outcome) -> None:
    sys.stderr.write(f"\r{outcome.kills} kills")


def table(outcome: Outcome) -> str:
    """What happened, then the figures that have to be 0, then whatever made one of them not 0."""
    rows: list[tuple[str, object]] = [
        ("daemon kills", outcome.kills),
        ("of them before it served", outcome.before_serving),
        ("most engines at once", outcome.most_engines),
        ("engines started", outcome.witnessed.get("start", 0)),
        ("children of theirs", outcome.witnessed.get("child", 0)),
        *sorted((f"orders: {kind}", count) for kind, count in outcome.orders.items()),
        ("seconds", f"{outcome.seconds:.0f}"),
        *outcome.counts.items(),
    ]
    text = "".join(f"{name:<28}{value:>8}\n" for name, value in rows)
    return text + "".join(f"  {it}\n" for it in outcome.findings) + outcome.stderr


if __name__ == "__main__":
    sys.exit(main())
