"""The principal: the user or client that makes a request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of the home, or a client to whom the owner gave a token.

    `name`: the name of the token, "" for the owner (also on stdio). `namespaces`: the namespaces
    that the client may see, empty for all.
    """

    name: str = ""
    namespaces: tuple[str, ...] = ()

    def sees(self, namespace: str) -> bool:
        """Tell whether this principal may see a namespace."""
        return not self.namespaces or namespace in self.namespaces


OWNER = Principal()
IN_SCOPE = "upwell.principal"
"""The key of the ASGI scope under which the guard of the HTTP doors stores the principal."""
