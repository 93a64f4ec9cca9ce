"""A server that keeps dying is restarted indefinitely, more and more slowly, until it stays
healthy.
"""

from upwell.gateway.upstreams.supervisor import Backoff


def test_waits_double_up_to_half_a_minute_and_restarts_never_end():
    backoff = Backoff()
    waits = [backoff.after(1.0) for _ in range(500)]
    assert waits[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
    assert set(waits[8:]) == {30.0}


def test_half_a_minute_of_health_resets_the_wait():
    backoff = Backoff()
    for _ in range(20):
        backoff.after(29.9)
    assert backoff.after(29.9) == 30.0
    assert backoff.after(30.1) == 0.2
    assert backoff.after(0.0) == 0.4
