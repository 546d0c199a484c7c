"""Who owns the replicas decides whether an apply may leave them out."""

from __future__ import annotations

from typing import Any

import pytest

from speccli.core.kube import fields

REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


def entry(manager: str, operation: str = "Apply", sub: str = "", owned: Any = REPLICAS) -> Any:
    told = {"manager": manager, "operation": operation, "fieldsV1": owned}
    return told | ({"subresource": sub} if sub else {})


def live(replicas: int | None, *entries: Any) -> dict[str, Any]:
    spec = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "llm", "managedFields": list(entries)},
        "spec": {**spec, "template": {}},
    }


SCALE = ("kube-controller-manager", "Update", "scale")


@pytest.mark.parametrize(
    ("there", "wanted", "gives_up"),
    [
        pytest.param(live(3, entry("specctl")), None, True, id="ours-and-now-an-autoscalers"),
        pytest.param(live(3, entry("specctl")), 3, False, id="still-ours"),
        pytest.param(live(3, entry(*SCALE)), None, False, id="an-autoscaler-has-it"),
        pytest.param(live(1), None, False, id="a-default-nobody-set"),
        pytest.param(
            live(3, entry("specctl"), entry(fields.HANDOVER)), None, True, id="cut-short-before"
        ),
        pytest.param(live(3, entry("specctl", "Update")), None, False, id="an-update-is-no-apply"),
    ],
)
def test_leaving_the_replicas_out_would_set_them_to_one(
    there: dict[str, Any], wanted: int | None, gives_up: bool
) -> None:
    assert fields.gives_up_replicas(there, live(wanted)) is gives_up


def test_nothing_is_given_up_where_nothing_is() -> None:
    assert not fields.gives_up_replicas(None, live(None))


@pytest.mark.parametrize(
    ("there", "leaves", "back"),
    [
        pytest.param(live(5, entry(*SCALE)), True, True, id="from-our-autoscaler"),
        pytest.param(live(5, entry(*SCALE)), False, False, id="from-somebody-elses"),
        pytest.param(live(5, entry(fields.HANDOVER)), False, True, id="cut-short-before"),
        pytest.param(live(5, entry("kubectl", "Update")), True, False, id="kubectl-is-a-conflict"),
        pytest.param(live(5, entry("specctl")), True, False, id="ours-already"),
        pytest.param(live(5, entry("keda", "Update", "scale")), True, True, id="from-keda"),
        pytest.param(
            live(5, entry("kubectl", "Update", "scale")), True, False, id="kubectl-scale-is-a-hand"
        ),
    ],
)
def test_replicas_are_taken_back_from_our_own_autoscaler_only(
    there: dict[str, Any], leaves: bool, back: bool
) -> None:
    assert fields.takes_back_replicas(there, live(2), scaler_leaves=leaves) is back


def test_only_replicas_says_nothing_else() -> None:
    told = fields.only_replicas(live(4), 4)
    assert told["spec"] == {"replicas": 4}
    assert told["metadata"] == {"name": "chat", "namespace": "llm"}
    assert "spec" not in fields.only_replicas(live(4), None)


def test_bookkeeping_is_no_difference() -> None:
    one, other = live(2), live(2, entry("kubectl"))
    other["metadata"] |= {"resourceVersion": "9", "generation": 4, "uid": "u"}
    other["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "7"}
    other["status"] = {"replicas": 2}
    assert fields.telling(one) == fields.telling(other)
    assert fields.difference("Deployment chat", one, other) == ""


def test_a_difference_shows_the_line_on_both_sides() -> None:
    text = fields.difference("Deployment chat", live(2), live(3))
    assert "-  replicas: 2" in text
    assert "+  replicas: 3" in text


def test_a_secret_is_not_shown() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "aHVudGVyMg=="}}
    assert "aHVudGVyMg==" not in fields.difference("Secret s", None, secret)
