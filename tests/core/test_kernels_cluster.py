"""What comes back from a cluster, put together or told in one line."""

from __future__ import annotations

import json

import pytest

from speccli.core import kernels_cluster, kernels_ways
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.kernels import Wanted
from speccli.core.kernels_ways import Asked

CHECK = {"name": "a.b", "status": "passed", "seconds": 1.5, "evidence": "3 exact"}
END = {"schema": "specctl.kernels/v1", "checks": 2, "exit": 0, "environment": {}}


def lines(*said: object) -> list[str]:
    return [one if isinstance(one, str) else json.dumps(one) for one in said]


def test_lines_of_a_log_are_put_together() -> None:
    log = lines("a library says something", CHECK, {**CHECK, "name": "c"}, END)
    document = kernels_cluster.assembled(log, 0, "job x")
    assert [one["name"] for one in document["checks"]] == ["a.b", "c"]
    assert kernels_cluster.told_by(log[1]) == "passed   a.b    1.5 s  3 exact"
    assert kernels_cluster.told_by(log[0]) is None


@pytest.mark.parametrize(
    ("log", "code", "kind", "words"),
    [
        pytest.param([CHECK, END], 0, SpecctlError, "1 of 2 checks", id="cut-short"),
        pytest.param(
            ["kernels_check: no CUDA device"], 3, SpecctlError, "no CUDA device in job x", id="gpu"
        ),
        pytest.param(
            ["kernels_check: error: no check is called z"], 64, UsageError, "no check is called z",
            id="usage",
        ),
        pytest.param(
            ["python3: not found", ""], 127, SpecctlError, "(exit 127): python3: not found",
            id="no-python",
        ),
        pytest.param([], 137, SpecctlError, "(exit 137): it said nothing", id="silent"),
    ],
)  # fmt: skip
def test_no_result_is_told_in_one_line(
    log: list[object], code: int, kind: type[SpecctlError], words: str
) -> None:
    with pytest.raises(kind) as told:
        kernels_cluster.assembled(lines(*log), code, "job x")
    assert words in told.value.message


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("registry.example/e@sha256:ab", "sha256:ab"),
        ("docker-pullable://e@sha256:ab", "sha256:ab"),
        ("sha256:ab", "sha256:ab"),
        ("e:1", None),
        ("", None),
    ],
)
def test_the_digest_of_an_image_as_a_node_names_it(name: str, digest: str | None) -> None:
    assert kernels_cluster.digest_of(name) == digest


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(True, True, None, Wanted(), image="e"), "exclude each other"),
        (Asked(False, True, None, Wanted()), "--image IMAGE, or --deployment"),
        (Asked(False, True, None, Wanted(), image="e", deployment="d"), "--job needs the image"),
        (Asked(True, False, None, Wanted(), node="n"), "--node goes with --job"),
        (Asked(False, False, "p", Wanted(), image="e"), "--image goes with --job"),
        (Asked(False, True, None, Wanted(), image="e", container="c"), "--container goes with"),
        (Asked(False, False, None, Wanted(), namespace="n"), "--namespace goes with --job or"),
        (Asked(False, False, "p", Wanted("python9")), "--python goes with --local"),
        (Asked(False, False, "p", Wanted(arguments=("--svg", "x"))), "--svg goes with --local"),
    ],
)
def test_options_that_do_not_go_together(asked: Asked, words: str) -> None:
    with pytest.raises(UsageError) as told:
        kernels_ways.check(asked, lambda text: None, lambda text: None)
    assert words in told.value.message
