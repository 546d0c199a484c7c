from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from speccli.core.errors import ExitCode
from speccli.core.kube.client import Cluster
from speccli.core.kube.errors import (
    Busy,
    Clash,
    ClusterError,
    Conflict,
    Denied,
    Expired,
    Invalid,
    NotInstalled,
    NotThere,
    TimedOut,
    Unreachable,
)
from tests.core.kube.conftest import Connect, answering
from tests.support.api_server import (
    ApiServer,
    Question,
    Reply,
    listed,
    not_there,
    status,
    write_kubeconfig,
)
from tests.support.certs import Certificates

PODS = "/api/v1/namespaces/prod/pods"
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "chat", "namespace": "prod"},
}
AT = "/apis/apps/v1/namespaces/prod/deployments/chat"


def test_connecting_says_where_and_what(api: ApiServer, connect: Connect) -> None:
    cluster = connect()
    assert (cluster.context, cluster.server, cluster.namespace) == ("here", api.url, "prod")
    assert cluster.version() == (1, 37)
    assert cluster.version_text == "v1.37.2"


def test_a_provider_may_add_to_the_minor_version(api: ApiServer, connect: Connect) -> None:
    api.script = answering("/version", Reply(body={"major": "1", "minor": "33+"}))
    assert connect().version() == (1, 33)


def test_a_list_has_every_page_and_says_what_its_items_are(
    api: ApiServer, connect: Connect
) -> None:
    api.script = answering(PODS, listed({"metadata": {"name": "a"}}, onward="more"), listed({}))
    found = connect().list("v1", "Pod", labels={"specctl.dev/deployment": "chat"})
    assert [each.get("metadata") for each in found] == [{"name": "a"}, None]
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("v1", "Pod")}
    first, second = [each.query for each in api.asked if each.path == PODS]
    assert first["labelSelector"] == "specctl.dev/deployment=chat"
    assert second["continue"] == "more"


def test_a_list_that_expired_between_two_pages_is_begun_anew(
    api: ApiServer, connect: Connect
) -> None:
    expired = status(410, "Expired", "The provided continue parameter is too old")
    api.script = answering(
        PODS, listed({"metadata": {"name": "a"}}, onward="more"), expired, listed({"x": 1})
    )
    assert [each.get("x") for each in connect().list("v1", "Pod")] == [1]
    assert "limit" not in api.asked[-1].query


def test_all_namespaces_are_asked_for_on_purpose(api: ApiServer, connect: Connect) -> None:
    api.script = answering("/api/v1/pods", listed())
    assert connect().list("v1", "Pod", "*") == []


def test_what_belongs_to_the_cluster_has_no_namespace(api: ApiServer, connect: Connect) -> None:
    api.script = answering("/api/v1/nodes/n1", Reply(body={"metadata": {"name": "n1"}}))
    assert connect().get("v1", "Node", "n1") == {"metadata": {"name": "n1"}}


def test_an_object_that_is_not_there_is_none_and_deleting_it_is_false(
    api: ApiServer, connect: Connect
) -> None:
    api.script = answering(AT, not_there("chat", "deployments"))
    cluster = connect()
    assert cluster.get("apps/v1", "Deployment", "chat") is None
    assert cluster.delete("apps/v1", "Deployment", "chat") is False
    assert api.asked[-1].query == {"propagationPolicy": "Foreground"}


def test_an_apply_is_strict_and_ours(api: ApiServer, connect: Connect) -> None:
    api.script = lambda asked: Reply(body=asked.json) if asked.method == "PATCH" else None
    assert connect().apply(DEPLOYMENT) == DEPLOYMENT
    sent = api.asked[-1]
    assert sent.path == AT
    assert sent.query == {"fieldManager": "specctl", "fieldValidation": "Strict"}
    assert sent.headers["content-type"] == "application/apply-patch+yaml"
    connect().apply(DEPLOYMENT, dry_run=True, force=True, manager="other")
    sent = api.asked[-1]
    assert (sent.query["dryRun"], sent.query["force"]) == ("All", "true")
    assert sent.query["fieldManager"] == "other"


def test_a_conflict_names_managers_and_fields(api: ApiServer, connect: Connect) -> None:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{manager}" using apps/v1',
            "field": field,
        }
        for manager, field in (("keda", ".spec.replicas"), ("kubectl edit", ".spec.paused"))
    ]
    api.script = answering(AT, status(409, "Conflict", "Apply failed with 2", causes=causes))
    with pytest.raises(Conflict) as raised:
        connect().apply(DEPLOYMENT)
    assert raised.value.clashes == (
        Clash("keda", ".spec.replicas"),
        Clash("kubectl edit", ".spec.paused"),
    )
    assert ".spec.replicas is set by keda; .spec.paused is set by kubectl edit" in str(raised.value)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        pytest.param(
            status(
                422,
                "Invalid",
                "Deployment is invalid",
                causes=[{"field": "spec.selector", "message": "field is immutable"}],
            ),
            "cannot apply Deployment chat in namespace prod: spec.selector: field is immutable",
            id="a-field",
        ),
        pytest.param(
            status(
                500,
                "InternalError",
                "failed to create typed patch object (prod/chat; apps/v1, Kind=Deployment): "
                '.spec.template.spec.containers[name="c"].imagee: field not declared in schema',
            ),
            'unknown field .spec.template.spec.containers[name="c"].imagee',
            id="an-unknown-field-is-a-500",
        ),
        pytest.param(
            status(400, "BadRequest", "metadata.managedFields must be nil"),
            "metadata.managedFields must be nil",
            id="a-bad-request",
        ),
    ],
)
def test_what_the_server_does_not_take_is_named(
    api: ApiServer, connect: Connect, reply: Reply, said: str
) -> None:
    api.script = answering(AT, reply)
    with pytest.raises(Invalid) as raised:
        connect().apply(DEPLOYMENT)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        pytest.param(
            'pods is forbidden: User "sre" cannot list resource "pods" in API group "" '
            'in the namespace "prod"',
            "not allowed: sre may not list pods in namespace prod",
            id="namespace",
        ),
        pytest.param(
            'nodes is forbidden: User "sre" cannot list resource "nodes" in API group "" '
            "at the cluster scope",
            "not allowed: sre may not list nodes in the whole cluster",
            id="cluster",
        ),
        pytest.param(
            'x is forbidden: User "sre" cannot patch resource "deployments" in API group "apps" '
            'in the namespace "prod"',
            "sre may not patch deployments.apps in namespace prod",
            id="group",
        ),
        pytest.param(
            'pods "a" is forbidden: exceeded quota: gpus',
            'forbidden: pods "a" is forbidden: exceeded quota: gpus',
            id="admission",
        ),
    ],
)
def test_who_may_not_do_what_where(
    api: ApiServer, connect: Connect, message: str, said: str
) -> None:
    api.script = answering(PODS, status(403, "Forbidden", message))
    with pytest.raises(Denied) as raised:
        connect().list("v1", "Pod")
    assert said in str(raised.value)
    assert raised.value.exit_code == ExitCode.UNKNOWN


def test_a_kind_that_no_operator_brought(api: ApiServer, connect: Connect) -> None:
    cluster = connect()
    with pytest.raises(NotInstalled) as raised:
        cluster.get("keda.sh/v1alpha1", "ScaledObject", "chat")
    assert str(raised.value).startswith("KEDA is not installed: the API server knows no Scaled")
    assert not cluster.knows("keda.sh/v1alpha1", "ScaledObject")
    with pytest.raises(NotInstalled, match="knows no Widget"):
        cluster.list("example.com/v1", "Widget")


def test_a_kind_is_found_once_it_is_there_and_missed_once_it_is_not(
    api: ApiServer, connect: Connect
) -> None:
    cluster = connect()
    assert not cluster.knows("keda.sh/v1alpha1", "ScaledObject")
    api.groups["keda.sh/v1alpha1"] = [("scaledobjects", "ScaledObject", True)]
    assert cluster.knows("keda.sh/v1alpha1", "ScaledObject")
    del api.groups["keda.sh/v1alpha1"]
    with pytest.raises(NotInstalled, match="KEDA is not installed"):
        cluster.list("keda.sh/v1alpha1", "ScaledObject")
    assert not cluster.knows("keda.sh/v1alpha1", "ScaledObject")


def test_kinds_are_kept_between_commands_in_a_private_place(
    api: ApiServer, connect: Connect, tmp_path: Path
) -> None:
    api.script = answering(PODS, listed())
    connect().list("v1", "Pod")
    connect().list("v1", "Pod")
    assert api.paths().count("/api/v1") == 1
    (kept,) = (tmp_path / ".cache" / "specctl").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text('{"resources": ')
    assert connect().list("v1", "Pod") == []
    assert api.paths().count("/api/v1") == 2


def test_another_version_of_the_server_is_asked_anew(api: ApiServer, connect: Connect) -> None:
    api.script = answering(PODS, listed())
    connect().list("v1", "Pod")
    api.script = lambda asked: (
        Reply(body={"major": "1", "minor": "38", "gitVersion": "v1.38.0"})
        if asked.path == "/version"
        else listed()
        if asked.path == PODS
        else None
    )
    connect().list("v1", "Pod")
    assert api.paths().count("/api/v1") == 2


def test_a_token_that_expired_is_read_anew_once(
    api: ApiServer, connect: Connect, tmp_path: Path
) -> None:
    def script(asked: Question) -> Reply | None:
        if asked.headers.get("authorization") != "Bearer newer":
            return status(401, "Unauthorized", "Unauthorized") if asked.path == PODS else None
        return listed() if asked.path == PODS else None

    api.script = script
    cluster = connect()
    write_kubeconfig(tmp_path / "kubeconfig", api.url, user={"token": "newer"})
    assert cluster.list("v1", "Pod") == []
    assert api.paths().count(PODS) == 2


def test_a_401_that_stays_is_said_after_one_more_try(api: ApiServer, connect: Connect) -> None:
    api.script = answering(PODS, status(401, "Unauthorized", "Unauthorized"))
    with pytest.raises(Expired, match="does not accept the credentials"):
        connect().list("v1", "Pod")
    assert api.paths().count(PODS) == 2


def test_a_busy_server_is_asked_again_when_it_says(api: ApiServer, connect: Connect) -> None:
    shed = status(429, "TooManyRequests", "too many")
    shed.headers["Retry-After"] = "0.2"
    api.script = answering(PODS, shed, shed, listed())
    began = time.monotonic()
    assert connect().list("v1", "Pod") == []
    assert time.monotonic() - began >= 0.4


def test_a_server_busy_for_longer_than_the_deadline_is_not_waited_for(
    api: ApiServer, connect: Connect
) -> None:
    shed = status(429, "TooManyRequests", "too many")
    shed.headers["Retry-After"] = "60"
    api.script = answering(PODS, shed)
    began = time.monotonic()
    with pytest.raises(Busy, match="429"):
        connect(deadline=50.0).list("v1", "Pod")
    assert time.monotonic() - began < 25


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(slow_s=5.0), id="slow-to-answer"),
        pytest.param(
            Reply(body=b'{"items": []}' + b" " * 1000, drip_s=0.05), id="a-byte-at-a-time"
        ),
    ],
)
def test_no_call_outlasts_its_deadline(api: ApiServer, connect: Connect, reply: Reply) -> None:
    cluster = connect(deadline=0.5)
    api.script = answering(PODS, reply)
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"within 0\.5 s"):
        cluster.list("v1", "Pod")
    assert time.monotonic() - began < 4.5


def test_an_answer_that_is_cut_is_no_answer(api: ApiServer, connect: Connect) -> None:
    cluster = connect()
    api.script = answering(PODS, Reply(body={"items": [1] * 50}, cut=True))
    with pytest.raises(Unreachable, match="cut in the middle"):
        cluster.list("v1", "Pod")
    api.script = answering(PODS, Reply(body={"items": []}, cut=True), listed())
    assert cluster.list("v1", "Pod") == []


def test_an_apply_that_is_cut_is_not_sent_twice(api: ApiServer, connect: Connect) -> None:
    cluster = connect()
    api.script = answering(AT, Reply(body={"a": [1] * 50}, cut=True))
    with pytest.raises(Unreachable):
        cluster.apply(DEPLOYMENT)
    assert api.paths("PATCH") == [AT]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with ApiServer() as gone:
        url = gone.url
    path = write_kubeconfig(tmp_path / "k", url)
    with pytest.raises(Unreachable, match="connect refused") as raised:
        Cluster.connect(str(path), environment={"HOME": str(tmp_path)})
    assert url in str(raised.value)
    path = write_kubeconfig(tmp_path / "k", "https://nowhere.invalid:6443")
    with pytest.raises(Unreachable, match="name not found"):
        Cluster.connect(str(path), environment={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        pytest.param(Reply(body=b"<html>Sign in</html>"), "no Kubernetes API server", id="page"),
        pytest.param(
            Reply(302, b"", {"Location": "https://login.example/x?token=abc"}),
            "redirects to login.example, perhaps a login",
            id="redirect",
        ),
        pytest.param(Reply(502, b"Bad Gateway"), "answered 502: Bad Gateway", id="gateway"),
    ],
)
def test_what_stands_before_the_server(
    api: ApiServer, connect: Connect, reply: Reply, said: str
) -> None:
    api.script = answering("/version", reply)
    with pytest.raises(ClusterError) as raised:
        connect()
    assert said in str(raised.value)
    assert "abc" not in str(raised.value)


class TestTls:
    def connect(self, url: str, folder: Path, **cluster: object) -> Cluster:
        path = write_kubeconfig(folder / "k", url, cluster=cluster)
        return Cluster.connect(str(path), environment={"HOME": str(folder)})

    def test_with_the_authority_of_the_kubeconfig(
        self, certificates: Certificates, tmp_path: Path
    ) -> None:
        with ApiServer(tls=certificates.server()) as api:
            authority = str(certificates.ca)
            cluster = self.connect(api.url, tmp_path, **{"certificate-authority": authority})
            assert cluster.version() == (1, 37)

    def test_an_authority_that_is_not_trusted(
        self, certificates: Certificates, tmp_path: Path
    ) -> None:
        with (
            ApiServer(tls=certificates.server()) as api,
            pytest.raises(Unreachable, match="certificate not accepted: ") as raised,
        ):
            self.connect(api.url, tmp_path)
        assert "certificate-authority" in str(raised.value.hint)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            pytest.param("expired", "certificate has expired", id="expired"),
            pytest.param("other", "certificate is of another host", id="other-host"),
        ],
    )
    def test_a_certificate_that_does_not_hold(
        self, certificates: Certificates, tmp_path: Path, name: str, said: str
    ) -> None:
        authority = {"certificate-authority": str(certificates.ca)}
        with (
            ApiServer(tls=certificates.server(name)) as api,
            pytest.raises(Unreachable, match=said),
        ):
            self.connect(api.url, tmp_path, **authority)

    def test_insecure_is_insecure(self, certificates: Certificates, tmp_path: Path) -> None:
        with ApiServer(tls=certificates.server("other")) as api:
            assert self.connect(api.url, tmp_path, **{"insecure-skip-tls-verify": True}).version()

    def test_the_name_that_the_kubeconfig_says(
        self, certificates: Certificates, tmp_path: Path
    ) -> None:
        named = {
            "certificate-authority": str(certificates.ca),
            "tls-server-name": "other.example",
        }
        with ApiServer(tls=certificates.server("other")) as api:
            assert self.connect(api.url, tmp_path, **named).version() == (1, 37)

    def test_a_client_certificate(self, certificates: Certificates, tmp_path: Path) -> None:
        user = {
            "client-certificate": str(certificates.pem("client")),
            "client-key": str(certificates.key("client")),
        }
        with ApiServer(tls=certificates.server(clients=True)) as api:
            path = write_kubeconfig(
                tmp_path / "k",
                api.url,
                user=user,
                cluster={"certificate-authority": str(certificates.ca)},
            )
            env = {"HOME": str(tmp_path)}
            assert Cluster.connect(str(path), environment=env).version() == (1, 37)

    def test_plain_http_where_tls_was_meant(self, tmp_path: Path) -> None:
        with ApiServer() as api, pytest.raises(Unreachable, match="plain http"):
            self.connect(api.url.replace("http:", "https:"), tmp_path)


class TestPods:
    def test_a_pod_answers_through_the_server(self, api: ApiServer, connect: Connect) -> None:
        api.script = answering(f"{PODS}/a:8000/proxy/v1/models", Reply(418, b"teapot"))
        assert connect().proxy("prod", "a", 8000, "/v1/models") == (418, b"teapot")

    def test_a_body_goes_out_as_it_is(self, api: ApiServer, connect: Connect) -> None:
        api.script = lambda asked: Reply(body=b"ok") if "proxy" in asked.path else None
        connect().proxy("prod", "a", "http", "/x", "POST", b'{"a":1}', {"X-Y": "z"})
        sent = api.asked[-1]
        assert (sent.method, sent.body, sent.headers["x-y"]) == ("POST", b'{"a":1}', "z")

    def test_a_busy_engine_is_not_asked_twice(self, api: ApiServer, connect: Connect) -> None:
        reply = Reply(429, b"slow down", {"Retry-After": "0.1"})
        api.script = answering(f"{PODS}/a:8000/proxy/x", reply)
        assert connect().proxy("prod", "a", 8000, "x")[0] == 429
        assert len([p for p in api.paths() if "proxy" in p]) == 1

    def test_a_pod_that_does_not_listen_is_no_answer_of_it(
        self, api: ApiServer, connect: Connect
    ) -> None:
        refused = "error trying to reach service: dial tcp 10.0.0.7:8000: connection refused"
        api.script = answering(
            f"{PODS}/a:8000/proxy/metrics", status(503, "ServiceUnavailable", refused)
        )
        with pytest.raises(ClusterError, match="dial tcp"):
            connect().proxy("prod", "a", 8000, "/metrics")

    def test_the_log_before_the_restart(self, api: ApiServer, connect: Connect) -> None:
        api.script = answering(f"{PODS}/a/log", Reply(body=b"one\ntw\xff\n"))
        assert connect().logs("prod", "a", "engine", tail=5, previous=True) == "one\ntw�\n"
        query = api.asked[-1].query
        assert (query["container"], query["tailLines"], query["previous"]) == (
            "engine",
            "5",
            "true",
        )

    def test_a_log_of_a_pod_that_is_gone(self, api: ApiServer, connect: Connect) -> None:
        api.script = answering(f"{PODS}/a/log", not_there("a"))
        with pytest.raises(NotThere, match='pods "a" not found'):
            connect().logs("prod", "a")

    def test_events_come_oldest_first(self, api: ApiServer, connect: Connect) -> None:
        events = [
            {"reason": "b", "lastTimestamp": "2026-09-01T10:00:02Z"},
            {"reason": "a", "eventTime": "2026-09-01T10:00:01.5Z", "lastTimestamp": None},
        ]
        api.script = answering("/api/v1/namespaces/prod/events", listed(*events))
        assert [each["reason"] for each in connect().events("prod", "a")] == ["a", "b"]
        assert api.asked[-1].query["fieldSelector"] == "involvedObject.name=a"


class TestAllowed:
    PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    @pytest.mark.parametrize(
        ("reply", "expected"),
        [
            pytest.param(Reply(201, {"status": {"allowed": True}}), True, id="yes"),
            pytest.param(Reply(201, {"status": {"allowed": False}}), False, id="no"),
            pytest.param(Reply(201, {"status": {}}), None, id="says-nothing"),
            pytest.param(status(403, "Forbidden", "no"), None, id="may-not-ask"),
        ],
    )
    def test_what_one_may(
        self, api: ApiServer, connect: Connect, reply: Reply, expected: bool | None
    ) -> None:
        api.script = answering(self.PATH, reply)
        assert connect().can("get", "deployments.apps/scale", "prod") is expected
        asked = json.loads(api.asked[-1].body)["spec"]["resourceAttributes"]
        assert asked == {
            "verb": "get",
            "resource": "deployments",
            "group": "apps",
            "subresource": "scale",
            "namespace": "prod",
        }

    def test_what_one_may_with_one_object(self, api: ApiServer, connect: Connect) -> None:
        api.script = answering(self.PATH, Reply(201, {"status": {"allowed": True}}))
        assert connect().can("get", "configmaps", "prod", "chat-specctl") is True
        asked = json.loads(api.asked[-1].body)["spec"]["resourceAttributes"]
        assert asked["name"] == "chat-specctl"


def test_a_proxy_of_the_environment_is_used_and_no_proxy_is_kept_to(
    tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer(lambda asked: Reply(body={"major": "9", "minor": "9"})) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        path = str(write_kubeconfig(tmp_path / "k", api.url))
        env = {"HOME": str(tmp_path)}
        assert Cluster.connect(path, environment=env).version() == (9, 9)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert Cluster.connect(path, environment=env).version() == (1, 37)
    monkeypatch.delenv("no_proxy")
    with pytest.raises(Unreachable, match="proxy") as raised:
        Cluster.connect(path, environment=env)
    assert "pass" not in str(raised.value)


def test_a_proxy_of_the_kubeconfig_beats_that_of_the_environment(
    tmp_path: Path, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ApiServer(lambda asked: Reply(body={"major": "9", "minor": "9"})) as proxy:
        path = write_kubeconfig(tmp_path / "k", api.url, cluster={"proxy-url": proxy.url})
        env = {"HOME": str(tmp_path)}
        assert Cluster.connect(str(path), environment=env).version() == (9, 9)
