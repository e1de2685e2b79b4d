"""SGLang's own parser."""

import argparse
from importlib.metadata import version

from reading import Values, answer, defaults_of, flags_of
from sglang.srt.server_args import ServerArgs

parser = argparse.ArgumentParser(prog="sglang serve")
ServerArgs.add_cli_args(parser)


def read(words: list[str]) -> tuple[Values, Values]:
    return vars(parser.parse_args(words)), defaults_of(parser)


answer(version("sglang"), flags_of(parser), read)
