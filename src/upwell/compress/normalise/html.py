"""HTML as Markdown: what a page says, without scripts, styles and tags."""

_MAX_CHARS = 8_000_000


def to_markdown(html: str) -> str:
    """The page as Markdown; the input itself where it cannot be read."""
    from html_to_markdown import ConversionOptions, convert

    if len(html) > _MAX_CHARS:
        return html
    options = ConversionOptions(expand_abbreviations=False)
    result = convert(html, options)
    return str(result.content or html)
