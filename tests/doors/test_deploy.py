"""Check the files in `deploy/`. No container is needed: the container's command is run as a
process."""

import configparser
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.doors.conformance.run import free_port
from tests.postgres import cluster
from upwell.config import SECTIONS, load
from upwell.web.server import DRAIN_SECONDS, NOTICE_SECONDS

DEPLOY = ROOT / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/upwell.yaml").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
USER = 10_001


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (manifest for manifest in MANIFESTS if manifest["kind"] == kind)
    return dict(found)


CONTAINER = of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_the_container_file_has_no_finding() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint
    done = subprocess.run(
        [hadolint, "--no-color", DEPLOY / "Containerfile"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("manifest", MANIFESTS, ids=[m["kind"] for m in MANIFESTS])
def test_the_manifests_are_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    wrong = {**of_kind("Service"), "spec": {"selectr": {"app": "upwell"}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


def test_every_setting_exists() -> None:
    variables = {variable["name"] for variable in CONTAINER["env"]}
    variables |= {*COMPOSE["services"]["upwell"]["environment"]}
    for variable in variables:
        section, _, name = variable.removeprefix("UPWELL_").lower().partition("__")
        assert name in SECTIONS[section].__dataclass_fields__, variable


def test_nothing_runs_as_root_or_writes_outside_its_volumes() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == USER
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert f"USER {USER}:{USER}" in CONTAINERFILE
    service = COMPOSE["services"]["upwell"]
    assert (service["read_only"], service["user"]) == (True, f"{USER}:{USER}")
    assert service["volumes"] == ["home:/var/lib/upwell"]


def test_a_gateway_under_systemd_may_end_in_peace() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((DEPLOY / "upwell.service").read_text())
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) > NOTICE_SECONDS + DRAIN_SECONDS
    assert service["ExecStart"].split()[1:] == ["serve", "--http", "127.0.0.1:8765"]
    assert service["Environment"] == f"UPWELL_HOME=/var/lib/{service['StateDirectory']}"


def test_labels_ports_and_probes_agree() -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    for kind, path in (
        ("Service", ("selector",)),
        ("Deployment", ("selector", "matchLabels")),
    ):
        value = of_kind(kind)["spec"]
        for part in path:
            value = value[part]
        assert value == labels, kind
    port = CONTAINER["ports"][0]["containerPort"]
    assert f"EXPOSE {port}" in CONTAINERFILE
    assert f'"0.0.0.0:{port}"' in CONTAINERFILE
    proxied = f"reverse_proxy upwell:{port} "
    assert proxied in (DEPLOY / "Caddyfile").read_text()
    (volume, *_) = of_kind("Deployment")["spec"]["template"]["spec"]["volumes"]
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert claim == of_kind("PersistentVolumeClaim")["metadata"]["name"]


def status_of(port: int, probe: dict[str, Any]) -> int:
    """The status of a probe, sent as the kubelet sends it; 0 if nobody listens."""
    headers = {header["name"]: header["value"] for header in probe["httpGet"]["httpHeaders"]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", probe["httpGet"]["path"], headers=headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def started(folder: Path, command: list[str], environment: dict[str, str]) -> Popen[bytes]:
    """A gateway in an empty environment, with a home that does not exist yet."""
    folder.mkdir()
    own = {"PATH": os.environ["PATH"], "UPWELL_HOME": str(folder / "home")}
    with (folder / "log").open("w") as log:
        return Popen(
            [sys.executable, "-m", "upwell", *command],
            env={**environment, **own, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            stdout=log,
            stderr=log,
        )


def test_a_gateway_runs_by_the_command_of_the_container(tmp_path: Path) -> None:
    lines = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", CONTAINERFILE, re.MULTILINE)
    entrypoint, command = map(json.loads, lines)
    assert entrypoint == ["upwell"]
    environment = {
        "UPWELL_STORE__URL": cluster().emptied(),
        "UPWELL_GATEWAY__HOSTS": CONTAINER["env"][-1]["value"],
    }
    port = free_port()
    args = [word.replace("0.0.0.0:8765", f"127.0.0.1:{port}") for word in command]
    process = started(tmp_path / "one", args, environment)
    try:
        wait_until_ready(process, port)
        assert (tmp_path / "one/home/token").exists()
        assert load(environment=environment).gateway.hosts == ("upwell.example.org", "upwell")
    finally:
        process.terminate()
        code = process.wait(30)
    assert code == 0


def wait_until_ready(process: Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, "it ended"
        probes = (CONTAINER[name] for name in ("livenessProbe", "readinessProbe"))
        statuses = [status_of(port, probe) for probe in probes]
        if statuses == [200, 200]:
            return
        assert time.monotonic() < deadline, statuses
        time.sleep(0.2)
