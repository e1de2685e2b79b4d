import pytest

from supervisor.health.body import not_ready_reason


@pytest.mark.parametrize(
    "body",
    [
        "",
        "  \n",
        "OK",
        "ok",
        "null",
        "true",
        "1",
        '"ok"',
        "[]",
        "{}",
        '{"status":"ok"}',
        '{"status": "ok", "slots_idle": 1}',
        '{"status":"no slot available"}',
        '{"status":"healthy","issues":[]}',
        '{"status":"loaded"}',
        '{"ready": true, "loading": false, "error": null}',
        '{"ready": null}',
        '{"error": ""}',
        '{"object":"list","data":[{"id":"m"}]}',
        '{"models":{"a":1}}',
        '{"choices":[{"text":"loading"}],"status":null}',
        '{"detail":{"status":"loading"}}',
        "The model finished loading.",
        "loading complete",
        "not loading",
        "<html><body>loading</body></html>",
        "pong",
        "{broken",
        "[" * 100_000,
        "\x00\xff",
    ],
)
def test_ready_unless_it_plainly_says_otherwise(body: str) -> None:
    assert not_ready_reason(body.encode()) is None


@pytest.mark.parametrize(
    "body",
    [
        '{"status":"loading"}',
        '{"status":"LOADING_MODEL"}',
        '{"status": "loading model"}',
        '{"status":"not-ready"}',
        '{"status":"unavailable"}',
        '{"status":"Starting"}',
        '{"status":"error"}',
        '{"state":"warming_up"}',
        '{"ready": false}',
        '{"model_loaded": false, "status": "ok"}',
        '{"loading": true}',
        '{"error":{"message":"Loading model","type":"unavailable_error","code":503}}',
        '{"error":"Loading model"}',
        '{"object":"list","data":[]}',
        '{"models":[]}',
        "false",
        '"loading"',
        "loading",
        "Loading model",
        "Loading model...",
        "Not ready",
        "Model is still loading, please wait.",
        "The server is starting up",
        "unavailable\n",
    ],
)
def test_what_says_not_yet(body: str) -> None:
    assert not_ready_reason(body.encode())


def test_a_cut_body_says_nothing() -> None:
    assert not_ready_reason(b"loading", whole=False) is None
