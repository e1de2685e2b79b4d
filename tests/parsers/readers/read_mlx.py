"""mlx_lm.server's own parser, caught when the program asks it: it is a local of its ``main``."""

import argparse
import sys
from importlib.metadata import version
from typing import NoReturn
from unittest.mock import patch

from mlx_lm import server
from reading import Values, answer, flags_of


class CaughtError(Exception):
    """Carries the parser out of the program."""


def catch(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
    raise CaughtError(parser)


def its_parser() -> argparse.ArgumentParser:
    try:
        with patch.object(argparse.ArgumentParser, "parse_args", catch):
            server.main()
    except CaughtError as caught:
        parser: argparse.ArgumentParser = caught.args[0]
        return parser
    sys.exit("mlx_lm.server no longer parses its arguments in main()")


parser = its_parser()


def read(words: list[str]) -> tuple[Values, Values]:
    return vars(parser.parse_args(words)), vars(parser.parse_args([]))


answer(version("mlx-lm"), flags_of(parser), read)
