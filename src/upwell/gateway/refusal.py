"""A request that gets a JSON-RPC error of ours."""

from upwell.wire.peer import error_body


class Refused(Exception):
    """Raised where a request makes no sense; `body` is the raw error object."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.body = error_body(code, message, data)
