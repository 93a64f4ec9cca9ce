"""A server's request for input, recognised in results of any size."""

from upwell.gateway.eras import wants_input

LONG = b'"' + b"x" * 5000 + b'"'


def test_a_request_for_input_is_recognised_between_two_long_members() -> None:
    result = b'{"inputRequests":%b,"resultType":"input_required","requestState":%b}' % (LONG, LONG)
    assert wants_input(result)


def test_a_text_about_requests_for_input_is_an_answer() -> None:
    assert not wants_input(b'{"content":[{"type":"text","text":"\\"input_required\\""}]}')
    assert not wants_input(b'{"structuredContent":{"resultType":"input_required"}}')
