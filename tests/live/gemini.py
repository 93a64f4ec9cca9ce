"""Google's `generateContent`, as Gemini CLI speaks it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.live.talk import Call, Said, as_events, as_json, text_in


class Contents:
    """A list of contents, each a list of parts; calls and their responses are parts."""

    def speaks(self, path: str) -> bool:
        return path.partition("?")[0].endswith((":generateContent", ":streamGenerateContent"))

    def said(self, body: Mapping[str, Any]) -> Sequence[Said]:
        system = text_in((body.get("systemInstruction") or {}).get("parts"))
        contents = body.get("contents", ())
        return [Said("system", system), *(part for content in contents for part in _parts(content))]

    def reply(self, path: str, body: Mapping[str, Any], next: Call | str) -> tuple[str, bytes]:
        call = None if isinstance(next, str) else {"name": next.tool, "args": dict(next.args)}
        part = {"functionCall": call} if call else {"text": next}
        content = {"role": "model", "parts": [part]}
        answer = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 10,
                "candidatesTokenCount": 5,
                "totalTokenCount": 15,
            },
            "modelVersion": "fake",
        }
        return as_events([answer]) if ":stream" in path else as_json(answer)


def _parts(content: Mapping[str, Any]) -> Iterator[Said]:
    for part in content.get("parts", ()):
        if "functionCall" in part:
            yield Said("call", json.dumps(part["functionCall"]))
        elif "functionResponse" in part:
            yield Said("result", json.dumps(part["functionResponse"].get("response")))
        else:
            yield Said("model" if content.get("role") == "model" else "user", text_in(part))


CONTENTS = Contents()
