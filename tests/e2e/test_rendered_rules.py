"""promtool on a rendered PrometheusRule: autoscaling's series, and the fleet's alerts narrowed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from speccli.core.alert.rules.write import TESTS, TESTS_OF_A_DAY, files
from speccli.core.manifests import RenderOptions, objects
from speccli.core.manifests.deployment_rules import terms
from speccli.core.recipes.load import load
from tests.support.manifests import HUB

pytestmark = [
    pytest.mark.real_prometheus,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed"),
]
RECIPE = load(HUB)
OWN = {"specctl_deployment": "chat", "pool": "main"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rules of a deployment called chat, in namespace prod."""
    place = tmp_path_factory.mktemp("rules")
    options = RenderOptions(namespace="prod", name="chat", pools=("structured",))
    made = objects(RECIPE, options)
    rule = next(each for each in made if each["kind"] == "PrometheusRule")
    (place / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    return place


def promtool(folder: Path, *words: str) -> None:
    done = subprocess.run(
        ["promtool", *words], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def prove(folder: Path, name: str, tests: dict[str, Any]) -> None:
    (folder / name).write_text(yaml.safe_dump(tests))
    promtool(folder, "test", "rules", name)


def test_the_rules_are_rules(folder: Path) -> None:
    promtool(folder, "check", "rules", "rules.yaml")


POOL = 'namespace="prod",specctl_deployment="chat",pool="main"'
_WAITED = "vllm:request_queue_time_seconds"


def series(values: dict[str, str], pod: str = "a", pool: str = POOL) -> list[dict[str, str]]:
    labels = f'{{{pool},pod="{pod}",engine="0",model_name="m"}}'
    return [{"series": f"{name}{labels}", "values": told} for name, told in values.items()]


def engine(*, waiting: str, first: str, waited: str = "0x60", answered: str = "0x60") -> Any:
    """Values at steps of 10 s."""
    return {
        "vllm:num_requests_waiting": waiting,
        "vllm:num_requests_running": "8x60",
        "vllm:time_to_first_token_seconds_count": first,
        f"{_WAITED}_sum": waited,
        f"{_WAITED}_count": answered,
    }


OTHER = 'namespace="prod",specctl_deployment="code",pool="main"'
ELSEWHERE = 'namespace="test",specctl_deployment="chat",pool="main"'
BUSY = engine(waiting="100x60", first="0+1x60")
WAITS: dict[str, tuple[list[dict[str, str]], str]] = {
    "idle-is-nothing-and-no-nan": (series(engine(waiting="0x60", first="0x60")), "0"),
    # 4 wait, 10 a second leave: the next one waits 400 ms.
    "backlog": (series(engine(waiting="4x60", first="0+100x60")), "400"),
    # 0.6 s each, seen when they finish; nothing waits now.
    "observed": (
        series(
            engine(waiting="0x60", first="0+100x60", waited="0+60x60", answered="0+100x60"),
        ),
        "600",
    ),
    # At 0.1 departures a second, one that waits is 10 s: but only the last scrape saw it.
    "one-that-has-just-come-does-not-count": (
        series(engine(waiting="0x29 1", first="0+1x60")),
        "0",
    ),
    "one-that-stays-counts": (series(engine(waiting="0x26 1x5", first="0+1x60")), "10000"),
    "stuck": (series(engine(waiting="4x60", first="100x60")), "60000"),
    "two-pods-are-one-pool": (
        series(engine(waiting="4x60", first="0+100x60"))
        + series(engine(waiting="0x60", first="0+100x60"), pod="b"),
        "200",
    ),
    "others-do-not-count": (
        series(engine(waiting="4x60", first="0+100x60"))
        + series(BUSY, pool=OTHER)
        + series(BUSY, pool=ELSEWHERE),
        "400",
    ),
    "grammars-do-not-count": (
        series(engine(waiting="40x60", first="0+100x60"))
        + [
            {
                "series": "vllm:num_requests_waiting_by_reason"
                f'{{{POOL},pod="a",engine="0",model_name="m",reason="{reason}"}}',
                "values": f"{count}x60",
            }
            for reason, count in (("capacity", 4), ("deferred", 36))
        ],
        "400",
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_queue_wait_is_a_number_of_one_pool(folder: Path, name: str) -> None:
    given, told = WAITS[name]
    expression = f"round(specctl:pool_queue_wait_ms{{{POOL}}}, 1)"
    case = {
        "expr": expression,
        "eval_time": "5m",
        "exp_samples": [{"labels": f"{{{POOL}}}", "value": float(told)}],
    }
    test = {"interval": "10s", "input_series": given, "promql_expr_test": [case]}
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "10s", "tests": [test]}
    prove(folder, f"{name}.yaml", tests)


@pytest.mark.parametrize("name", [TESTS, TESTS_OF_A_DAY])
def test_every_alert_of_the_fleet_fires_and_stays_silent_here_too(folder: Path, name: str) -> None:
    tests = yaml.safe_load(files(terms(RECIPE))[name])
    tests["rule_files"] = ["rules.yaml"]
    for test in tests["tests"]:
        for each in test["input_series"]:
            each["series"] = _labelled(each["series"])
        test["alert_rule_test"] = [
            _expected(case) for case in test["alert_rule_test"] if case["alertname"] not in SHARED
        ]
    assert any(case["exp_alerts"] for test in tests["tests"] for case in test["alert_rule_test"])
    tests["tests"] = [
        test
        for test in tests["tests"]
        if test["alert_rule_test"] and "sglang" not in test["name"]  # manifests are of vLLM
    ]
    prove(folder, f"of-chat-{name}", tests)


SHARED = {"SpecctlWatchSilent"}
"""About specctl's own watch, of no deployment in particular."""


def _labelled(text: str) -> str:
    own = ",".join(f'{name}="{value}"' for name, value in OWN.items())
    return re.sub(r"\{", f"{{{own},", text, count=1)


def _expected(case: dict[str, Any]) -> dict[str, Any]:
    for alert in case["exp_alerts"]:
        labels = alert["exp_labels"]
        if "namespace" in labels:
            labels |= OWN
        else:  # absent(): what its selector says
            labels |= {"namespace": "prod", "specctl_deployment": "chat"}
    return case
