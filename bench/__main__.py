"""``python -m bench``: measure what is named, or all there is."""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import report
from bench.figure import Figure, Row, Skip
from bench.figures import FIGURES
from bench.machine import facts
from bench.parts.peers import Peers
from bench.parts.product import PRODUCT
from bench.report import Outcome, Report
from bench.stage import Scale, Stage, scratch, set_stage


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments(argv)
    if options.list:
        for figure in FIGURES.values():
            print(f"{figure.name:12} {figure.title}")
        return 0
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    whole = run(options.names or list(FIGURES), options.scale, peers=options.peers, say=_say)
    path = report.write(whole, options.into)
    print(report.table(whole.figures))
    print(f"\n{whole.seconds:.0f} s, {path}")
    if whole.busy:
        print("the machine was busy with other things: latencies are theirs too (see --realtime)")
    if whole.peers_missing:
        print(f"without peers: {whole.peers_missing}")
    return 1 if whole.failed else 0


def run(
    names: Sequence[str],
    scale: Scale,
    *,
    peers: bool = True,
    say: Callable[[str], None] | None = None,
) -> Report:
    """Measure these figures, each on a stage of its own. A figure that breaks breaks no other."""
    began = time.monotonic()
    at = report.now()
    theirs = Peers(wanted=peers and scale != "tiny")
    if scale != "tiny" and (reason := PRODUCT.prepare()) and say is not None:
        say(reason)
    outcomes = []
    with scratch() as (folder, engine):
        machine, load = facts(folder), os.getloadavg()[0]
        for number, name in enumerate(names):
            figure = FIGURES[name]
            if say is not None:
                say(f"{figure.title} …")
            with set_stage(scale, engine, theirs, folder / str(number)) as stage:
                outcomes.append(_measured(figure, stage))
        compiled = engine.compiled
    return Report(
        at=at,
        scale=scale,
        machine=machine,
        load=load,
        compiled_engine=compiled,
        peers_missing=theirs.missing,
        seconds=round(time.monotonic() - began, 1),
        figures=tuple(outcomes),
    )


def _measured(figure: Figure, stage: Stage) -> Outcome:
    began, load = time.monotonic(), os.getloadavg()[0]
    problem, failed = None, False
    rows: list[Row] = []
    try:
        rows.extend(figure.measure(stage))
    except Skip as skip:
        problem = str(skip)
    except Exception as error:
        traceback.print_exc()
        problem, failed = f"{type(error).__name__}: {error}", True
    return Outcome(
        name=figure.name,
        title=figure.title,
        seconds=round(time.monotonic() - began, 1),
        load=load,
        rows=tuple(rows),
        problem=problem,
        failed=failed,
    )


def _say(text: str) -> None:
    """Progress is for a person who waits; it is no part of the output."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a figure; all of them by default")
    size = parser.add_mutually_exclusive_group()
    for scale, words in (
        ("quick", "a minute and a half, few samples"),
        ("full", "two hundred engines, many samples"),
        ("tiny", "only to see that it works"),
    ):
        size.add_argument(f"--{scale}", dest="scale", action="store_const", const=scale, help=words)
    parser.set_defaults(scale="default")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run all sides at SCHED_FIFO 1, to measure them and not a busy machine's neighbours",
    )
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="install none")
    parser.add_argument("--into", type=Path, default=report.RESULTS, help="folder for the JSON")
    parser.add_argument("--list", action="store_true", help="name the figures, and do nothing")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.names if name not in FIGURES]:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
