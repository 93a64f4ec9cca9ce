"""An MCP server over HTTP that requires a token, and the authorization server that issues tokens:
discovery, dynamic registration, PKCE, refresh with rotation, expiry, revocation. It is strict, and
reports its requests at `/control/state`.

`/control/expire` ends every access token, and `/control/revoke` ends every login.
`/control/set?deny=true` makes the user say no, and `?forge=true` makes the browser come back with a
wrong `state`.
"""

import argparse
import base64
import hashlib
import json
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

STATE: dict[str, Any] = {
    "registered": 0,
    "authorized": 0,
    "exchanged": 0,
    "refreshed": 0,
    "machines": 0,
    "refused": 0,
    "strangers": [],
    "deny": False,
    "forge": False,
    "lifetime": 3600,
    "scopes": [],
    "wider": "",
}
CLIENTS: dict[str, dict[str, Any]] = {
    "agreed-on": {"redirect_uris": None, "secret": ""},
    "robot": {"redirect_uris": [], "secret": "hush-robot"},
}
CODES: dict[str, dict[str, str]] = {}
ACCESS: set[str] = set()
SCOPES: dict[str, str] = {}
REFRESH: dict[str, str] = {}
LOCK = threading.Lock()


class Refused(Exception):
    """An error of RFC 6749."""


def message(identity: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}).encode()


class Oauth(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return None

    @property
    def own(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def send(self, status: int, body: Any = b"", **more: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with LOCK:
            if parts.path == "/.well-known/oauth-protected-resource/mcp":
                servers = [self.own]
                self.send(200, {"resource": f"{self.own}/mcp", "authorization_servers": servers})
            elif parts.path == "/.well-known/oauth-authorization-server":
                self.send(200, self.metadata())
            elif parts.path == "/authorize":
                self.authorize(options)
            elif parts.path == "/control/state":
                self.send(200, {**STATE, "tokens": sorted([*ACCESS, *REFRESH])})
            elif parts.path.startswith("/control/"):
                self.control(parts.path.removeprefix("/control/"), options)
            else:
                self.send(404)

    def control(self, what: str, given: dict[str, str]) -> None:
        if what == "expire":
            ACCESS.clear()
        elif what == "revoke":
            ACCESS.clear()
            REFRESH.clear()
        elif what == "set":
            STATE.update({name: json.loads(value) for name, value in given.items()})
        self.send(200, {})

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.own,
            "authorization_endpoint": f"{self.own}/authorize",
            "token_endpoint": f"{self.own}/token",
            "registration_endpoint": f"{self.own}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def authorize(self, given: dict[str, str]) -> None:
        """The request of the user's browser; the user consents, unless `deny` is set."""
        client = CLIENTS.get(given.get("client_id", ""))
        redirect = given.get("redirect_uri", "")
        known = client and (client["redirect_uris"] is None or redirect in client["redirect_uris"])
        if not known or urlsplit(redirect).hostname != "127.0.0.1":
            self.send(400, {"error": "no such client, or not its redirect"})
            return
        asked = (given.get("response_type"), given.get("code_challenge_method"))
        if asked != ("code", "S256") or given.get("resource") != f"{self.own}/mcp":
            self.send(400, {"error": "response_type, challenge and resource are needed"})
            return
        back = {"state": given.get("state", ""), "iss": self.own}
        if STATE["forge"]:
            back["state"] = "forged"
        if STATE["deny"]:
            back["error"] = "access_denied"
        else:
            STATE["authorized"] += 1
            back["code"] = secrets.token_urlsafe(16)
            CODES[back["code"]] = given
        self.send(302, location=f"{redirect}?{urlencode(back)}")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        with LOCK:
            try:
                if self.path == "/register":
                    self.register(json.loads(raw))
                elif self.path == "/token":
                    self.token({k: v[0] for k, v in parse_qs(raw.decode()).items()})
                elif self.path == "/mcp":
                    self.mcp(json.loads(raw))
                else:
                    self.send(404)
            except Refused as error:
                STATE["refused"] += 1
                self.send(400, {"error": str(error)})

    def register(self, body: dict[str, Any]) -> None:
        STATE["registered"] += 1
        name, secret = f"client-{len(CLIENTS)}", secrets.token_urlsafe(16)
        CLIENTS[name] = {"redirect_uris": body["redirect_uris"], "secret": secret}
        method = "client_secret_basic"
        fields = {"client_id": name, "client_secret": secret, "token_endpoint_auth_method": method}
        self.send(201, {**body, **fields})

    def client(self, body: dict[str, str]) -> str:
        """The client of a token request. A client with a secret must present it."""
        name, secret = body.get("client_id", ""), ""
        kind, _, pair = self.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = base64.b64decode(pair).decode().partition(":")
        if name not in CLIENTS or CLIENTS[name]["secret"] != secret:
            raise Refused("invalid_client")
        return name

    def token(self, body: dict[str, str]) -> None:
        name = self.client(body)
        if body.get("resource") != f"{self.own}/mcp":
            raise Refused("invalid_target")
        scope = ""
        if body["grant_type"] == "authorization_code":
            asked = CODES.pop(body.get("code", ""), None)
            challenge = base64.urlsafe_b64encode(
                hashlib.sha256(body.get("code_verifier", "").encode()).digest()
            ).decode()
            if (
                asked is None
                or asked["client_id"] != name
                or asked["redirect_uri"] != body.get("redirect_uri")
                or asked["code_challenge"] != challenge.rstrip("=")
            ):
                raise Refused("invalid_grant")
            scope = asked.get("scope", "")
            STATE["exchanged"] += 1
        elif body["grant_type"] == "client_credentials" and name == "robot":
            STATE["machines"] += 1
            ACCESS.add(access := f"at-{secrets.token_urlsafe(24)}")
            payload = {"access_token": access, "token_type": "Bearer"}
            self.send(200, {**payload, "expires_in": STATE["lifetime"]})
            return
        elif REFRESH.pop(body.get("refresh_token", ""), None) == name:
            STATE["refreshed"] += 1
        else:
            REFRESH.clear()
            raise Refused("invalid_grant")
        access, refresh = f"at-{secrets.token_urlsafe(24)}", f"rt-{secrets.token_urlsafe(24)}"
        ACCESS.add(access)
        SCOPES[access] = scope
        REFRESH[refresh] = name
        payload = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh}
        self.send(200, {**payload, "expires_in": STATE["lifetime"]})

    def mcp(self, body: dict[str, Any]) -> None:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or token not in ACCESS:
            STATE["strangers"].append(token[:3])
            metadata = f"{self.own}/.well-known/oauth-protected-resource/mcp"
            self.send(401, www_authenticate=f'Bearer resource_metadata="{metadata}"')
            return
        identity, method = body.get("id"), body["method"]
        lacks = set(STATE["wider"].split()) - set(SCOPES.get(token, "").split())
        if method == "tools/call" and lacks:
            asked = f'Bearer error="insufficient_scope", scope="{STATE["wider"]}"'
            self.send(403, {"error": "forbidden"}, www_authenticate=asked)
            return
        if identity is None:
            self.send(202)
        elif method == "initialize":
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            info = {"name": "oauth", "version": "1"}
            self.send(200, message(identity, {**about, "serverInfo": info}))
        elif method == "tools/list":
            tool = {"name": "whoami", "inputSchema": {"type": "object"}}
            self.send(200, message(identity, {"tools": [tool]}))
        else:
            payload = {"type": "text", "text": self.headers["authorization"]}
            self.send(200, message(identity, {"content": [payload]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Oauth)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
