"""What is judged harmless, and what an engine's own parser makes of it.

Flags in every spelling, cut, glued and between values, by the thousand.
"""

from collections.abc import Mapping
from random import Random

import pytest

from supervisor.contracts.engine import EngineId
from supervisor.engines.harmless import judge
from supervisor.engines.registry import SPELLINGS
from tests.engines.requests import request
from tests.engines.test_harmless import DANGEROUS
from tests.parsers.asking import hear, reaching
from tests.parsers.test_parsers import FAST, parser_of

TRUSTED: Mapping[EngineId, frozenset[str]] = {
    "mlx": frozenset({"host", "trust_remote_code", "allowed_origins", "chat_template"}),
    "llamacpp": frozenset(
        {
            *("hostnames", "public_path", "media_path", "slot_save_path", "path_prompts_log_dir"),
            *("models_dir", "models_preset", "prompt_file", "in_files", "out_file", "logits_file"),
            *("ssl_file_key", "ssl_file_cert", "mcp_servers_config", "mcp_servers_json"),
            *("server_tools", "server_tools_runtime", "ui_mcp_proxy", "video_ffmpeg_bin_dir"),
        }
    ),
}
"""Where in a parser's result the words land that take trust; our own host is its default."""
MODEL: Mapping[EngineId, str] = {"mlx": "model", "llamacpp": "model.path"}
VALUES = ("1", "-1", "x", "/etc/x", "0.5", "--", "-", "{}", "a=b", "-x", "x y", "@/etc/x", "--x")


def spelled(word: str, chance: Random) -> str:
    """A flag as it is, or not quite."""
    how = chance.randrange(10)
    if how < 5:
        return word
    changed = {
        5: word[: chance.randint(1, len(word))],
        6: word[:2] + word[2:].replace("-", "_"),
        7: f"{word}={chance.choice(VALUES)}",
        8: word + chance.choice(VALUES),
        9: f"{word}.x",
    }
    return changed[how]


def accepted(engine: EngineId, count: int) -> list[list[str]]:
    """Lists of words that are judged harmless."""
    spelling, chance = SPELLINGS[engine], Random(20261201)
    flags = sorted({*spelling.harmless.words, *spelling.index, *DANGEROUS[engine].split()})
    lists: list[list[str]] = []
    while len(lists) < count:
        words = [
            spelled(chance.choice(flags), chance)
            if chance.random() < 0.6
            else chance.choice(VALUES)
            for _ in range(chance.randint(1, 5))
        ]
        if judge(spelling, words).beyond is None:
            lists.append(words)
    return lists


@pytest.mark.parametrize("engine", FAST)
def test_an_engine_reads_nothing_else_into_what_is_harmless(engine: EngineId) -> None:
    lists = accepted(engine, 1_000)
    plans = [reaching(request(engine=engine, extraArgs=words)) for words in lists]
    told = hear(parser_of(engine), plans)["read"]
    usual = told[next(index for index, one in enumerate(told) if "values" in one)]["values"]
    assert usual.keys() >= TRUSTED[engine]
    understood = 0
    for words, one in zip(lists, told, strict=True):
        if "error" in one:
            continue
        understood += 1
        assert not TRUSTED[engine] & set(one["changed"]), words
        assert one["values"][MODEL[engine]] == usual[MODEL[engine]], words
    assert understood > 100
