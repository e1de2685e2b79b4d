"""One answer for everybody who asks at the same time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

Question = TypeVar("Question")
Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Round(Generic[Question, Answer]):
    questions: list[Question] = field(default_factory=list)
    answers: Sequence[Answer] | None = None
    error: Exception | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class Batch(Generic[Question, Answer]):
    """Runs one at a time, each for all who asked since the one before it began.

    So a run begins after every question that it answers, and two hundred questions of the same
    moment cost one hop to a thread.
    """

    def __init__(self, answer: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]) -> None:
        """``answer`` gives as many answers as it gets questions, in their order."""
        self._answer = answer
        self._next = _Round[Question, Answer]()
        self._turn = anyio.Lock()

    async def ask(self, question: Question) -> Answer:
        """Raises what ``answer`` raises, to everybody who asked for that run."""
        while True:
            mine = self._next
            place = len(mine.questions)
            mine.questions.append(question)
            if place:
                await mine.done.wait()
            else:
                await self._run(mine)
            if mine.error is not None:
                raise mine.error
            if mine.answers is not None:
                return mine.answers[place]
            # Whoever ran it was cancelled, which is nobody else's business.

    async def _run(self, mine: _Round[Question, Answer]) -> None:
        try:
            async with self._turn:
                self._next = _Round()
                mine.answers = await self._answer(mine.questions)
        except Exception as error:
            mine.error = error
        finally:
            if self._next is mine:
                self._next = _Round()
            mine.done.set()
