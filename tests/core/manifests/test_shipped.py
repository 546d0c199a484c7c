"""manifests/base and components are what this version renders, and kustomize takes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from speccli.core.manifests.lint import problems
from speccli.core.manifests.shipped import shipped

ROOT = Path(__file__).parents[3] / "manifests"
COMPONENTS = sorted({name.split("/")[1] for name in shipped() if name.startswith("components/")})


def test_they_are_what_is_rendered() -> None:
    there = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in ("base", "components")
        for path in (ROOT / folder).rglob("*.yaml")
    }
    assert there == shipped(), "run make manifests"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("component", [None, *COMPONENTS])
def test_kustomize_makes_a_whole_of_them(component: str | None, tmp_path: Path) -> None:
    for name in ("base", "components"):
        shutil.copytree(ROOT / name, tmp_path / name)
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../base"],
        "components": [f"../components/{component}"] if component else [],
    }
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    ran = subprocess.run(
        ["kubectl", "kustomize", tmp_path / "overlay"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    made = [*yaml.safe_load_all(ran.stdout)]
    assert [*problems(made)] == []
    kinds = [each["kind"] for each in made]
    wanted = {
        None: ("ScaledObject", 1),
        "structured-output": ("Deployment", 2),
        "canary": ("PodDisruptionBudget", 2),
        "standby": ("ScaledObject", 2),
        "prometheus-adapter": ("ScaledObject", 0),
        "inference-pool": ("InferencePool", 1),
    }
    kind, count = wanted[component]
    assert kinds.count(kind) == count
