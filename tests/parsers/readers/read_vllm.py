"""vLLM's own parser, with the subcommand, so that its rewriting of ``serve`` is gone through."""

from importlib.metadata import version

from reading import Values, answer, defaults_of, flags_of
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = FlexibleArgumentParser(prog="vllm")
serve = ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))


def read(words: list[str]) -> tuple[Values, Values]:
    values = vars(parser.parse_args(list(words)))
    values.pop("subparser")
    return values, defaults_of(serve)


answer(version("vllm"), flags_of(serve), read)
