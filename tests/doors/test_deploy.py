"""Check the files in `deploy/`. No container is needed: the container's command is run as two
replicas on one database."""

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
from upwell.gateway.options import GatewayOptions

DEPLOY = ROOT / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/upwell.yaml").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
USER = 10_001
GATEWAY = GatewayOptions()


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
    variables |= {*COMPOSE["x-gateway"]["environment"]}
    for variable in variables:
        section, _, name = variable.removeprefix("UPWELL_").lower().partition("__")
        assert name in SECTIONS[section].__dataclass_fields__, variable


def test_nothing_runs_as_root_or_writes_outside_its_volumes() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == USER
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    assert f"USER {USER}:{USER}" in CONTAINERFILE
    for name in ("upwell-1", "upwell-2"):
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["user"]) == (True, f"{USER}:{USER}")


def test_a_replica_under_systemd_may_end_in_peace() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string((DEPLOY / "upwell@.service").read_text())
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) > GATEWAY.notice_seconds + GATEWAY.drain_seconds
    assert service["ExecStart"].split()[1:] == ["serve", "--http", "127.0.0.1:%i"]
    assert service["Environment"] == f"UPWELL_HOME=/var/lib/{service['StateDirectory']}"


def test_the_proxy_looks_more_often_than_a_replica_announces_its_end() -> None:
    for name, pattern, unit in (
        ("Caddyfile", r"health_interval (\d+)s", 1.0),
        ("haproxy.cfg", r"check inter (\d+)ms", 0.001),
    ):
        interval = re.search(pattern, (DEPLOY / name).read_text())
        assert interval, name
        assert float(interval[1]) * unit < GATEWAY.notice_seconds


def test_labels_ports_and_probes_agree() -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    for kind, path in (
        ("Service", ("selector",)),
        ("PodDisruptionBudget", ("selector", "matchLabels")),
        ("Deployment", ("selector", "matchLabels")),
    ):
        value = of_kind(kind)["spec"]
        for part in path:
            value = value[part]
        assert value == labels, kind
    port = CONTAINER["ports"][0]["containerPort"]
    assert f"EXPOSE {port}" in CONTAINERFILE
    assert f'"0.0.0.0:{port}"' in CONTAINERFILE
    proxied = f"reverse_proxy upwell-1:{port} upwell-2:{port} "
    assert proxied in (DEPLOY / "Caddyfile").read_text()
    target = of_kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == of_kind("Deployment")["metadata"]["name"]


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
    """A replica in an empty environment, with a home that does not exist yet."""
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


def test_two_replicas_run_by_the_command_of_the_container(tmp_path: Path) -> None:
    lines = re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", CONTAINERFILE, re.MULTILINE)
    entrypoint, command = map(json.loads, lines)
    assert entrypoint == ["upwell"]
    environment = {
        "UPWELL_STORE__URL": cluster().emptied(),
        "UPWELL_STORE__SECRET": "s" * 64,
        "UPWELL_GATEWAY__HOSTS": CONTAINER["env"][-1]["value"],
    }
    replicas: dict[int, Popen[bytes]] = {}
    try:
        for name in ("one", "two"):
            port = free_port()
            args = [word.replace("0.0.0.0:8765", f"127.0.0.1:{port}") for word in command]
            replicas[port] = started(tmp_path / name, args, environment)
        for port, process in replicas.items():
            wait_until_ready(process, port)
        tokens = {path.read_text() for path in tmp_path.glob("*/home/team/token")}
        assert len(tokens) == 1, "the owner's token is the same on all replicas"
        assert load(environment=environment).gateway.hosts == ("upwell.example.org", "upwell")
    finally:
        for process in replicas.values():
            process.terminate()
        codes = [process.wait(30) for process in replicas.values()]
    assert codes == [0, 0]


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
