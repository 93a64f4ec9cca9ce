"""`llm_summary`: a language model's summary, where one is configured; falls back to truncate."""

from upwell.compress.fitted import Fitted, Room, outcome, whole
from upwell.ground.errors import CompressionError, LlmError
from upwell.ground.limits import Deadline
from upwell.ground.llm import Chat
from upwell.ground.types import Budget, Compressed, Omission, Passage

_PROMPT = """Shorten the text between the lines of dashes to at most {words} words. Keep names, \
numbers, paths, identifiers and error messages exactly as they stand. Add nothing.{question}
----------
{text}
----------"""
_CHARS_PER_WORD = 7


class Summary:
    """Needs a model; a Summary without one refuses, and the ladder goes on."""

    name = "llm_summary"

    def __init__(self, chat: Chat | None = None, timeout_seconds: float = 60.0) -> None:
        self._chat = chat
        self._timeout_seconds = timeout_seconds

    def fits(self, passage: Passage) -> bool:
        return self._chat is not None

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        room = Room.of(budget)
        if room.holds(passage.text):
            return whole(passage)
        if self._chat is None:
            raise CompressionError("no language model is configured", strategy=self.name)
        chars = min(room.chars, room.tokens * 4)
        question = f" It must answer: {passage.query}" if passage.query else ""
        prompt = _PROMPT.format(
            words=max(20, int(chars / _CHARS_PER_WORD)), question=question, text=passage.text
        )
        try:
            answer = self._chat.chat(prompt, Deadline.after(self._timeout_seconds)).strip()
        except LlmError as error:
            raise CompressionError(error.message, strategy=self.name) from error
        if not answer:
            raise CompressionError("the model answered nothing", strategy=self.name)
        if not room.holds(answer):
            raise CompressionError("the summary is longer than the budget", strategy=self.name)
        left = (Omission(what="characters", count=len(passage.text), total=len(passage.text)),)
        return outcome(passage, Fitted(answer, left), self.name)
