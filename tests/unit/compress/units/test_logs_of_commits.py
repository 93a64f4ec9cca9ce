"""A shortened git log keeps what is recent, and the names of the files that changed."""

from upwell.compress import compress


def test_recent_commits_come_first_in_a_log_of_titles() -> None:
    log = "".join(f"{n:07x} fix(quay): berth {n} is dredged\n" for n in range(1000, 1060))
    rows = compress(log, max_chars=len(log) // 4).text.split("\n")
    assert rows[:8] == log.split("\n")[:8]


def test_changed_files_outrank_the_message() -> None:
    message = "".join(
        f"    Because of tide {n}, the keel of the barge grounds\n" for n in range(40)
    )
    files = "".join(f" src/quay_{n}.py | {n} ++--\n" for n in range(6))
    log = (
        "commit 0baa988b1419618c0f73026c4cfc737e44810cc9\nAuthor: Ada <ada@harbor.example>\n"
        f"Date:   Wed Jul 8 13:38:59 2026 +0300\n\n    fix: dredge\n    \n{message}\n{files}"
        " 6 files changed, 15 insertions(+), 15 deletions(-)\n"
    )
    text = compress(log, max_chars=600).text
    assert all(f"src/quay_{n}.py" in text for n in range(6))
