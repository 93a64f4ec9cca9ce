"""Parses front matter as other programs write it, which is nearly YAML.

People write `description: Use jq: never grep`. Because of one such line, a YAML parser would reject
the whole block. This parser rejects nothing. It reads `key: value`, lists, block text and one level
of nested keys (`metadata.type`).
"""

FENCE = "---"
MAX_LINES = 200
_BLOCKS = ("|", "|-", "|+", ">", ">-", ">+")

Fields = dict[str, str | list[str]]


def front_and_body(text: str) -> tuple[Fields, str]:
    """The fields of the front matter, keyed by lower-case name, and the text below it. A text
    without front matter is returned whole."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != FENCE:
        return {}, text
    for number, line in enumerate(lines[1 : MAX_LINES + 1], 1):
        if line.rstrip() == FENCE:
            return _fields(lines[1:number]), "\n".join(lines[number + 1 :])
    return {}, text


def field(fields: Fields, *names: str) -> str:
    """The first of these fields that is a non-empty string; "" if there is none."""
    values = (fields.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), "")


def items(fields: Fields, name: str) -> list[str]:
    """The items of a list or a comma-separated string."""
    value = fields.get(name, "")
    if isinstance(value, list):
        return value
    bare = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
    return [item for part in bare.split(",") if (item := _plain(part))]


def _fields(lines: list[str]) -> Fields:
    fields: Fields = {}
    section = key = ""
    is_text = False
    for line in lines:
        bare, is_indented = line.strip(), line[:1].isspace()
        name, colon, value = bare.partition(":")
        if not bare or bare.startswith("#"):
            continue
        if is_indented and is_text:
            fields[key] = f"{fields[key]} {bare}".strip()
        elif bare.startswith("- ") and key:
            _append(fields, key, _plain(bare[2:]))
        elif colon and is_indented:
            key = f"{section}.{name.strip()}".lower()
            fields[key] = _plain(value)
        elif colon:
            section = key = name.strip().lower()
            is_text = bool(value.strip())
            fields[key] = "" if value.strip() in _BLOCKS else _plain(value)
    return fields


def _append(fields: Fields, key: str, item: str) -> None:
    present = fields.get(key)
    fields[key] = [*present, item] if isinstance(present, list) else [item]


def _plain(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]:
        quote = value[0]
        return value[1:-1].replace(f"\\{quote}" if quote == '"' else "''", quote)
    return value
