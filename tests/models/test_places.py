"""Places for so many calls at once, in the order in which they are due."""

import anyio
import pytest

from xnagent.models.places import Places


async def settled() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


class Crowd:
    """Calls that take a place, say so, and keep it until they are told."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.order: list[str] = []
        self.inside = 0
        self.most = 0
        self.end = anyio.Event()

    async def call(self, name: str, due: float) -> None:
        async with self.places.held(due):
            self.order.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            if name == "first":
                await self.end.wait()
            self.inside -= 1


async def test_of_those_that_wait_the_one_due_first_goes_first_and_equals_in_turn():
    crowd = Crowd(Places(1))
    async with anyio.create_task_group() as group:
        for name, due in (("first", 0), ("late", 9), ("soon", 1), ("a", 5), ("b", 5)):
            group.start_soon(crowd.call, name, due)
            await settled()
        assert crowd.order == ["first"]
        crowd.end.set()
    assert crowd.order == ["first", "soon", "a", "b", "late"]
    assert crowd.most == 1


@pytest.mark.parametrize("is_given", [False, True])
async def test_a_place_is_not_lost_with_a_call_that_is_cancelled(*, is_given: bool):
    places = Places(1)
    scope, taken = anyio.CancelScope(), anyio.Event()

    async def give_up() -> None:
        with scope:
            async with places.held(1):
                await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        async with places.held(0):
            group.start_soon(give_up)
            await settled()
            if not is_given:
                scope.cancel()
                await settled()
        scope.cancel()
        await settled()
        with anyio.fail_after(5):
            async with places.held(2):
                taken.set()
    assert taken.is_set()
