"""Every benchmark can be imported; running them takes hours and needs other data."""

import json
import subprocess
import sys

from tests.conftest import ROOT

OWN = ("upwell", "benchmarks", "tests")
IMPORT_ALL = """
import importlib.util, json, sys
problems = {}
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("benchmark", path)
    module = sys.modules["benchmark"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        problems[path] = [error.name, str(error)]
    except Exception as error:
        problems[path] = ["upwell", str(error)]
print(json.dumps(problems))
"""


def test_every_benchmark_can_be_imported() -> None:
    paths = [str(path) for path in sorted((ROOT / "benchmarks").glob("*.py"))]
    assert len(paths) > 20
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *paths],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    problems = json.loads(done.stdout.splitlines()[-1])
    # A worker for another product imports that product, which is not installed here.
    mine = {path: why for path, (name, why) in problems.items() if name.startswith(OWN)}
    assert not mine
