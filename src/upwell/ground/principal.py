"""Who asks: the owner of the home, or somebody to whom the owner gave a token over HTTP."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Who was let in. No `name`: the owner, also on stdio. Empty `namespaces` means all of them."""

    name: str = ""
    namespaces: tuple[str, ...] = ()

    def sees(self, namespace: str) -> bool:
        """May this one see what is kept in a namespace?"""
        return not self.namespaces or namespace in self.namespaces


OWNER = Principal()
IN_SCOPE = "upwell.principal"
"""Under this name the guard of the HTTP doors says in the ASGI scope who was let in."""
