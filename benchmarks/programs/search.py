"""Prints what is installed here the way MCP servers print search results."""

from importlib.metadata import distributions

for package in sorted(distributions(), key=lambda package: package.metadata["Name"].lower()):
    metadata = package.metadata
    page = (metadata.get_all("Project-URL") or [metadata.get("Home-page") or "none"])[0]
    print(f"Title: {metadata['Name']} {package.version}")
    print(f"URL: {page}")
    print(f"Summary: {metadata['Summary']}")
    print(f"License: {metadata.get('License-Expression') or 'unknown'}")
    print(f"Requires: {', '.join(package.requires or [])[:200]}")
    print()
