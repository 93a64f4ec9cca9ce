"""After the clock has jumped ahead, deletions wait for a day."""

from pathlib import Path

from upwell.ground.clock import JUMP_SECONDS, ClockRecord
from upwell.testing import ManualClock

DAY, YEAR = 86_400.0, 365 * 86_400.0


def test_a_jump_is_noticed_for_a_day_by_every_process(tmp_path: Path) -> None:
    clock = ManualClock(1_795_000_000.6)
    assert not ClockRecord(tmp_path / "clock", clock).has_just_jumped()
    clock.advance(YEAR)
    for _ in range(3):
        assert ClockRecord(tmp_path / "clock", clock).has_just_jumped()
        clock.advance(DAY / 4)
    clock.advance(DAY / 4)
    assert not ClockRecord(tmp_path / "clock", clock).has_just_jumped()


def test_a_clock_that_is_right_again_is_believed(tmp_path: Path) -> None:
    clock = ManualClock(1_795_000_000.6)
    record = ClockRecord(tmp_path / "clock", clock)
    record.has_just_jumped()
    clock.advance(YEAR)
    assert record.has_just_jumped()
    clock.advance(-YEAR)
    assert not record.has_just_jumped()
    clock.advance(DAY)
    assert not record.has_just_jumped()
    clock.advance(YEAR)
    assert record.has_just_jumped()


def test_ordinary_days_are_no_jump(tmp_path: Path) -> None:
    clock = ManualClock(1_795_000_000.6)
    record = ClockRecord(tmp_path / "clock", clock)
    for _ in range(5):
        assert not record.has_just_jumped()
        clock.advance(JUMP_SECONDS - 1)


def test_a_damaged_record_is_no_jump(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("\0")
    clock = ManualClock(1_795_000_000.6)
    assert not ClockRecord(tmp_path / "clock", clock).has_just_jumped()
