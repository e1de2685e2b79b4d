"""Questions of one moment share a run, and a run answers only what was asked before it began."""

from collections.abc import Sequence

import anyio
import pytest

from supervisor.launchers.process.batch import Batch

pytestmark = pytest.mark.anyio


class Clerk:
    """Answers tenfold, once its gate is open."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.gate = anyio.Event()
        self.batch = Batch[int, int](self.answer)

    async def answer(self, questions: Sequence[int]) -> list[int]:
        self.asked.append(list(questions))
        await self.gate.wait()
        if -1 in questions:
            raise OSError("no answer")
        return [10 * question for question in questions]


async def test_each_gets_its_own_answer_and_latecomers_the_next_run() -> None:
    clerk = Clerk()
    answers: dict[int, int] = {}

    async def ask(question: int) -> None:
        answers[question] = await clerk.batch.ask(question)

    async with anyio.create_task_group() as group:
        for question in range(200):
            group.start_soon(ask, question)
        await anyio.wait_all_tasks_blocked()
        for question in range(200, 300):
            group.start_soon(ask, question)
        await anyio.wait_all_tasks_blocked()
        assert clerk.asked == [list(range(200))]
        clerk.gate.set()
    assert clerk.asked == [list(range(200)), list(range(200, 300))]
    assert answers == {question: 10 * question for question in range(300)}


async def test_an_error_reaches_everybody_of_that_run_and_nobody_else() -> None:
    clerk = Clerk()
    clerk.gate.set()
    failed: list[int] = []

    async def ask(question: int) -> None:
        try:
            await clerk.batch.ask(question)
        except OSError:
            failed.append(question)

    async with anyio.create_task_group() as group:
        for question in (12, -1, 14):
            group.start_soon(ask, question)
    assert sorted(failed) == [-1, 12, 14]
    assert await clerk.batch.ask(15) == 150


@pytest.mark.parametrize("when", ["before its run", "in its run"])
async def test_the_one_who_runs_it_may_be_cancelled(when: str) -> None:
    clerk = Clerk()
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await clerk.batch.ask(2))

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            if when == "before its run":
                scope.cancel()
            else:
                group.start_soon(ask)
                group.start_soon(_cancel_soon, scope)
            await clerk.batch.ask(1)
        assert scope.cancelled_caught
        group.start_soon(ask)
        clerk.gate.set()
    assert answers == [20] * (1 if when == "before its run" else 2)


async def _cancel_soon(scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()
