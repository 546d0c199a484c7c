"""The checks as a Job: what Kubernetes is asked for, and that what travels in it runs."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core import kernels, kernels_job
from speccli.core.kernels_job import JobRequest

REQUEST = JobRequest("registry/vllm@sha256:0", "prod", "node-7", ("--only", "gemm"), 600)


@pytest.fixture(scope="module")
def made() -> list[dict[str, Any]]:
    return kernels_job.objects(REQUEST, kernels.package())


def test_it_asks_for_one_gpu_and_the_engines_image(made: list[dict[str, Any]]) -> None:
    spec = made[1]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == REQUEST.image
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "node-7"}
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 600)
    assert {one["metadata"]["namespace"] for one in made} == {"prod"}


def test_its_pod_meets_the_restricted_standard(made: list[dict[str, Any]]) -> None:
    pod = made[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False
    assert all(set(volume) - {"name"} <= {"configMap", "emptyDir"} for volume in pod["volumes"])


def test_the_package_fits_a_config_map_and_packs_alike(made: list[dict[str, Any]]) -> None:
    archive = base64.b64decode(made[0]["binaryData"][kernels_job.ARCHIVE])
    assert len(archive) < 900_000
    assert archive == kernels_job.pack(kernels.package())
    assert b"registry/" not in archive


def test_what_travels_runs_from_where_it_is_unpacked(
    made: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_job, "PACKED", str(tmp_path / "check"))
    monkeypatch.setattr(kernels_job, "WORK", str(tmp_path / "work"))
    (tmp_path / "check").mkdir()
    archive = base64.b64decode(made[0]["binaryData"][kernels_job.ARCHIVE])
    (tmp_path / "check" / kernels_job.ARCHIVE).write_bytes(archive)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "work" / "home"),
        "TMPDIR": str(tmp_path / "work" / "tmp"),
    }
    done = subprocess.run(
        kernels_job.command(("--list", "--only", "gemm.fp8")),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("gemm.fp8 ")


def test_the_command_prints_what_kubectl_reads() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "speccli", "kernels", "job", "--image", "vllm:x", "-n", "prod"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert kinds == ["ConfigMap", "Job"]
