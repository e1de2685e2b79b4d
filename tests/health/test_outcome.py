from hypothesis import given
from hypothesis import strategies as st

from supervisor.health.outcome import TEXT_LIMIT, printable


def test_control_characters_cannot_forge_a_log() -> None:
    shown = printable("\x1b[31mred\r\n2026-01-01 ready\u2028\u202e\ud800")
    assert shown == "\\x1b[31mred\\r\\n2026-01-01 ready\\u2028\\u202e\\ud800"


def test_plain_text_passes_untouched() -> None:
    assert printable("Größe 模型 ✓ ok") == "Größe 模型 ✓ ok"


@given(st.text(max_size=600))
def test_always_bounded_and_printable(text: str) -> None:
    shown = printable(text)
    assert len(shown) <= TEXT_LIMIT
    assert shown.isprintable()
    shown.encode()
