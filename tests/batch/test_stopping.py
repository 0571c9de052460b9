"""The first request to stop lets sessions close in order, the second makes them stop at once (B060)."""

from xnagent.batch.stopping import BatchStop


async def test_B060_a_second_request_reaches_every_session_and_those_that_begin_late_stop_too():
    stop = BatchStop()
    first, gone = stop.enter(), stop.enter()
    stop.leave(gone)
    stop.request("SIGTERM")
    late = stop.enter()
    assert (stop.signal, first.event.signal, late.event.signal) == ("SIGTERM", "SIGTERM", "SIGTERM")
    assert stop.asked.is_set()
    assert first.soft.is_set()
    assert late.soft.is_set()
    assert not first.hard.is_set()
    assert not gone.soft.is_set()
    stop.request("SIGINT")
    assert stop.signal == "SIGTERM"
    assert stop.asked_again.is_set()
    assert first.hard.is_set()
    assert late.hard.is_set()


async def test_a_batch_that_stops_by_itself_was_not_told_to():
    stop = BatchStop()
    session = stop.enter()
    stop.end()
    assert stop.signal is None
    assert session.soft.is_set()
