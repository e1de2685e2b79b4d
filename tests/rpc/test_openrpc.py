"""The interface as a document. ``UPDATE_GOLDEN=1`` writes it anew, for somebody to look at."""

import json
import os
from pathlib import Path

from supervisor.rpc.methods import METHODS
from supervisor.rpc.openrpc import document
from tests.rpc.wire import Wire

GOLDEN = Path(__file__).parents[2] / "golden" / "openrpc.json"


def test_the_document_is_the_golden_one(wire: Wire) -> None:
    found = json.dumps(wire.ask("rpc.discover")["result"], indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == found, "see UPDATE_GOLDEN=1 and `git diff golden`"


def test_every_reference_leads_somewhere() -> None:
    tree = json.loads(document(METHODS))
    components = tree["components"]

    def walk(node: object) -> None:
        match node:
            case {"$ref": str(ref)}:
                _, kind, name = ref.removeprefix("#/").split("/")
                assert name in components[kind]
            case dict():
                for child in node.values():
                    walk(child)
            case list():
                for child in node:
                    walk(child)
            case _:
                pass

    walk(tree)
    assert [method["name"] for method in tree["methods"]] == list(METHODS)
    launch = next(m for m in tree["methods"] if m["name"] == "instance.launch")
    assert (launch["params"][0]["name"], launch["params"][0]["required"]) == ("name", True)
    assert launch["x-role"] == "operate"
