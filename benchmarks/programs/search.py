"""Prints what is installed here the way MCP servers print search results."""

from importlib.metadata import distributions

for found in sorted(distributions(), key=lambda one: one.metadata["Name"].lower()):
    about = found.metadata
    page = (about.get_all("Project-URL") or [about.get("Home-page") or "none"])[0]
    print(f"Title: {about['Name']} {found.version}")
    print(f"URL: {page}")
    print(f"Summary: {about['Summary']}")
    print(f"License: {about.get('License-Expression') or 'unknown'}")
    print(f"Requires: {', '.join(found.requires or [])[:200]}")
    print()
