"""The server that the official conformance suite requires, on the official SDK, over stdio or (with
`--port`) HTTP. Its tools, prompts and resources follow the suite's own texts.
"""

import argparse
import asyncio
import json
from typing import Any

import asking
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NO_ARGUMENTS = {"type": "object", "properties": {}}
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
WORDS = {"type": "string"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "test_simple_text": NO_ARGUMENTS,
    "test_image_content": NO_ARGUMENTS,
    "test_audio_content": NO_ARGUMENTS,
    "test_embedded_resource": NO_ARGUMENTS,
    "test_multiple_content_types": NO_ARGUMENTS,
    "test_tool_with_logging": NO_ARGUMENTS,
    "test_tool_with_progress": NO_ARGUMENTS,
    "test_error_handling": NO_ARGUMENTS,
    "test_sampling": {"type": "object", "properties": {"prompt": WORDS}, "required": ["prompt"]},
    "test_elicitation": {
        "type": "object",
        "properties": {"message": WORDS},
        "required": ["message"],
    },
    "test_elicitation_sep1034_defaults": NO_ARGUMENTS,
    "test_elicitation_sep1330_enums": NO_ARGUMENTS,
    "test_reconnection": NO_ARGUMENTS,
    "json_schema_2020_12_tool": SCHEMA_2020,
    "test_logging_tool": NO_ARGUMENTS,
    "test_missing_capability": NO_ARGUMENTS,
    "test_headers": {
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    },
    **dict.fromkeys(asking.TOOLS, NO_ARGUMENTS),
}
THREE = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
OPTIONS = ["option1", "option2", "option3"]
FORMS: dict[str, dict[str, Any]] = {
    "test_elicitation": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    },
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": THREE},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["One", "Two", "Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": THREE}},
    },
}
Context = ServerRequestContext[Any]


def text(value: str) -> types.TextContent:
    return types.TextContent(type="text", text=value)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, kind: str, value: str) -> types.EmbeddedResource:
    inside = types.TextResourceContents(uri=uri, mime_type=kind, text=value)
    return types.EmbeddedResource(type="resource", resource=inside)


STILL: dict[str, list[Any]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        image(),
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ],
    "json_schema_2020_12_tool": [text("fine")],
    "test_headers": [text("fine")],
    "test_missing_capability": [text("fine")],
}


async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = [
        types.Tool(name=name, description=name, input_schema=schema)
        for name, schema in SCHEMAS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: Context, params: types.CallToolRequestParams) -> Any:
    name = params.name
    if name in asking.ROUNDS:
        return await asking.asked(context, params, name, said_result)
    if name == "test_missing_capability":
        await asking.refuse_without_sampling(context)
    if name in STILL:
        return types.CallToolResult(content=STILL[name])
    if name == "test_error_handling":
        reply = text("This tool intentionally returns an error for testing")
        return types.CallToolResult(content=[reply], is_error=True)
    reply = await busy(context, params)
    return types.CallToolResult(content=[text(reply)])


def said_result(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[text(words)])


async def busy(context: Context, params: types.CallToolRequestParams) -> str:
    """The tools that send messages before they answer."""
    name, arguments, session = params.name, params.arguments or {}, context.session
    if name in ("test_tool_with_logging", "test_logging_tool"):
        for entry in ("started", "processing data", "completed"):
            await session.send_log_message(
                "info", f"Tool execution {entry}", related_request_id=context.request_id
            )
            await asyncio.sleep(0.05)
        return "logged"
    if name == "test_tool_with_progress":
        for step in (0, 50, 100):
            await session.report_progress(step, 100, f"Completed step {step} of 100")
            await asyncio.sleep(0.05)
        return "done"
    if name == "test_sampling":
        asked = types.SamplingMessage(role="user", content=text(arguments["prompt"]))
        answer = await session.create_message(
            [asked], max_tokens=100, related_request_id=context.request_id
        )
        return f"LLM response: {getattr(answer.content, 'text', '')}"
    if name == "test_reconnection":
        if context.close_sse_stream is not None:
            await context.close_sse_stream()
        await asyncio.sleep(0.1)
        return "Reconnection test completed"
    form = {"type": "object", "properties": FORMS[name], "required": list(FORMS[name])[:2]}
    message = arguments.get("message", "Please fill this in")
    reply = await session.elicit_form(message, form, related_request_id=context.request_id)
    return f"User response: action={reply.action}, content={json.dumps(reply.content)}"


RESOURCES = [f"test://{name}" for name in ("static-text", "static-binary", "watched-resource")]


async def list_resources(_: Context, __: Any) -> types.ListResourcesResult:
    collected = [
        types.Resource(uri=uri, name=uri.removeprefix("test://"), description=uri)
        for uri in RESOURCES
    ]
    return types.ListResourcesResult(resources=collected)


async def list_templates(_: Context, __: Any) -> types.ListResourceTemplatesResult:
    first = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
    return types.ListResourceTemplatesResult(resource_templates=[first])


async def read(
    context: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    contents: types.TextResourceContents | types.BlobResourceContents
    if uri == "test://static-binary":
        contents = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    elif uri.startswith("test://template/"):
        name = uri.split("/")[3]
        payload = {"id": name, "templateTest": True, "data": f"Data for ID: {name}"}
        contents = types.TextResourceContents(
            uri=uri, mime_type="application/json", text=json.dumps(payload)
        )
    elif uri not in RESOURCES:
        missing = -32602 if context.protocol_version == asking.MODERN else -32002
        raise MCPError(missing, f"Resource not found: {uri}", {"uri": uri})
    else:
        said_text = "This is the content of the static text resource."
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=said_text)
    return types.ReadResourceResult(contents=[contents])


async def nothing(_: Context, __: Any) -> types.EmptyResult:
    return types.EmptyResult()


ARGUMENTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
    "test_input_required_result_prompt": [],
}


async def list_prompts(_: Context, __: Any) -> types.ListPromptsResult:
    prompts = [
        types.Prompt(
            name=name,
            description=name,
            arguments=[
                types.PromptArgument(name=argument, required=True) for argument in arguments
            ],
        )
        for name, arguments in ARGUMENTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(
    context: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    if params.name in asking.ROUNDS:
        return await asking.asked(context, params, params.name, said_prompt)
    values = params.arguments or {}
    blocks: dict[str, list[Any]] = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            text(f"Prompt with arguments: arg1='{values.get('arg1')}', arg2='{values.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            embedded(
                values.get("resourceUri", "test://none"),
                "text/plain",
                "Embedded resource content for testing.",
            ),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [image(), text("Please analyze the image above.")],
    }
    messages = [types.PromptMessage(role="user", content=entry) for entry in blocks[params.name]]
    return types.GetPromptResult(messages=messages)


def said_prompt(words: str) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text(words))])


async def complete(_: Context, __: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(
        completion=types.Completion(values=["paris"], total=1, has_more=False)
    )


def server() -> Server[Any]:
    return Server(
        "reference",
        version="1.0",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_set_logging_level=nothing,
    )


async def on_stdio() -> None:
    served = server()
    async with stdio_server() as (source, sink):
        await served.run(source, sink, served.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    if not port:
        asyncio.run(on_stdio())
        return
    import uvicorn

    app = server().streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
