"""TabbyAPI's own parser, and its own validation of what came out of it. Argument: its checkout."""

import os
import subprocess
import sys
import tempfile

from reading import Values, answer, flags_of

CHECKOUT = os.path.abspath(sys.argv[1])
sys.path.insert(0, CHECKOUT)
os.chdir(tempfile.gettempdir())  # away from a config.yml

from common.args import convert_args_to_dict, init_argparser  # noqa: E402
from common.tabby_config import TabbyConfig  # noqa: E402

parser = init_argparser()


def read(words: list[str]) -> tuple[Values, Values]:
    given = TabbyConfig()
    given.load(convert_args_to_dict(parser.parse_args(words), parser))
    unsaid = TabbyConfig()
    unsaid.load({})
    return flat(given), flat(unsaid)


def flat(config: TabbyConfig) -> Values:
    """Field names are unique over all sections, as its flat command line needs them to be."""
    return {name: value for part in config.model_dump().values() for name, value in part.items()}


def commit() -> str:
    git = ["git", "-C", CHECKOUT, "rev-parse", "--short=12", "HEAD"]
    told = subprocess.run(git, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "a copy without history"


answer(commit(), flags_of(parser), read)
