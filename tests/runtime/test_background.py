"""`compute_async`: the event loop goes on, and cancelling the task stops the core."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import pyeffect_torch as et

SECONDS_MAX = 1.0  # from the cancellation to the end of the task; the core needs milliseconds


def long_work() -> et.Array:
    """A lazy product that takes many seconds."""
    x = et.compute(et.ones((1024, 1024)) * 1e-3)
    y = x
    for _ in range(4000):
        y = y @ x
    return y


def test_the_result_is_that_of_compute() -> None:
    x = et.array([1.0, 2.0])
    tree = {"a": x + 1, "b": [x * x, 3]}
    got = asyncio.run(et.compute_async(tree))
    assert got["a"] is tree["a"] and got["a"].state == "concrete"
    assert (got["b"][0].tolist(), got["b"][1].item()) == ([1.0, 4.0], 3)


def test_the_event_loop_goes_on() -> None:
    async def main() -> tuple[int, float]:
        x = et.compute(et.ones((512, 512)) / 512.0)
        y = x
        for _ in range(60):
            y = y @ x
        task = asyncio.create_task(et.compute_async(y))
        turns = 0
        while not task.done():
            await asyncio.wait([task], timeout=0.001)
            turns += 1
        return turns, float((await task)[0, 0])

    turns, _ = asyncio.run(main())
    assert turns > 10


def test_several_at_once() -> None:
    async def main() -> Any:
        x = et.array([1.0])
        return await asyncio.gather(*(et.compute_async(x + k) for k in range(8)))

    assert [x.item() for x in asyncio.run(main())] == [1.0 + k for k in range(8)]


def test_the_runtime_is_that_of_the_task() -> None:
    async def main() -> et.Array:
        with et.use(et.reference()):
            return await et.compute_async(et.zeros(2) + 1)

    assert asyncio.run(main()).placement is et.reference()


def test_errors_are_raised_in_the_task() -> None:
    async def main() -> None:
        index = et.array([5])
        await et.compute_async(et.take(et.ones(3), index))

    with pytest.raises(et.errors.IndexOutOfBoundsError):
        asyncio.run(main())


def test_cancelling_the_task_stops_the_core() -> None:
    async def main() -> float:
        task = asyncio.create_task(et.compute_async(long_work()))
        await asyncio.wait([task], timeout=0.1)
        assert not task.done()
        started = time.perf_counter()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.perf_counter() - started

    assert asyncio.run(main()) < SECONDS_MAX
    assert (et.array([1.0]) + 1).tolist() == [2.0]


def test_a_timeout_of_asyncio_and_a_second_cancellation() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(et.compute_async(long_work()), timeout=0.1)
        task = asyncio.create_task(et.compute_async(long_work()))
        await asyncio.wait([task], timeout=0.1)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.perf_counter()
    asyncio.run(main())
    assert time.perf_counter() - started < 60 * SECONDS_MAX


def test_a_cancel_scope_around_it_ends_it_with_our_error() -> None:
    async def main() -> None:
        with et.cancel_scope(timeout=0.1):
            await et.compute_async(long_work())

    with pytest.raises(et.errors.CancelledError, match="cancel_scope"):
        asyncio.run(main())


def test_an_outer_cancel_scope_reaches_inner_ones() -> None:
    with (
        pytest.raises(et.errors.CancelledError),
        et.cancel_scope(timeout=0.1),
        et.cancel_scope(timeout=60.0),
    ):
        et.compute(long_work())
    with et.cancel_scope() as outer:
        outer.cancel()
        with et.cancel_scope(), pytest.raises(et.errors.CancelledError):
            et.compute(et.array([1.0]) * 2.0)
