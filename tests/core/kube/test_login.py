"""Kubeconfigs and credential plugins, the broken ones first."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from speccli.core.errors import ExitCode, UsageError
from speccli.core.kube.client import Cluster
from speccli.core.kube.credentials import Login
from speccli.core.kube.errors import CredentialsError
from speccli.core.kube.kubeconfig import choose, kubeconfig_files
from tests.support.api_server import ApiServer, Question, Reply, listed, status, write_kubeconfig
from tests.support.certs import Certificates

V1 = "client.authentication.k8s.io/v1"
PODS = "/api/v1/namespaces/prod/pods"


def plugin(path: Path, script: str, **more: Any) -> dict[str, Any]:
    """A user whose credentials a shell script gives."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": V1, "command": str(path), **more}}


def credential(**given: Any) -> str:
    """A script that prints an ExecCredential."""
    told = {"apiVersion": V1, "kind": "ExecCredential", "status": given}
    return f"cat <<'E'\n{json.dumps(told)}\nE"


def ended(process: int) -> bool:
    """Whether a process is gone within two seconds; one that nobody collects is."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


class TestFiles:
    def test_without_any(self, home: dict[str, str]) -> None:
        with pytest.raises(UsageError, match="no kubeconfig") as raised:
            Login(None, None, None, home)(1.0)
        assert raised.value.exit_code == ExitCode.USAGE

    def test_one_that_was_given_must_be_there(self, home: dict[str, str], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="is not there"):
            kubeconfig_files(str(tmp_path / "nothing"), home)
        with pytest.raises(UsageError, match="is a folder"):
            kubeconfig_files(str(tmp_path), home)

    def test_those_of_the_variable_that_are_there(
        self, home: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "a").touch()
        there = home | {"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"}
        assert kubeconfig_files(None, there) == [tmp_path / "a"]
        with pytest.raises(UsageError, match="nothing is there"):
            kubeconfig_files(None, home | {"KUBECONFIG": f"{tmp_path}/b"})

    def test_the_usual_one(self, home: dict[str, str], tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        usual = tmp_path / ".kube" / "config"
        usual.touch()
        assert kubeconfig_files(None, home) == [usual]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            pytest.param("", "is empty", id="empty"),
            pytest.param("a: b: c", "line 1 is not YAML", id="not-yaml"),
            pytest.param("a:\n\tb: 1", "line 2 is not YAML", id="tab"),
            pytest.param("- 1", "must be a mapping", id="a-list"),
            pytest.param("\xff\x00", "is not YAML", id="binary"),
            pytest.param("contexts: 3", "contexts must be a list", id="no-list"),
            pytest.param(
                "contexts: [{context: {}}]", "entry of contexts has no name", id="nameless"
            ),
            pytest.param(
                "users: [{name: u, user: x}]", "user u must be a mapping", id="no-mapping"
            ),
            pytest.param("clusters: []", "sets no current-context", id="no-context"),
            pytest.param(
                "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]",
                "no cluster c, which context a names",
                id="no-cluster",
            ),
            pytest.param(
                "current-context: a\ncontexts: [{name: a, context: {}}]",
                "context a names no cluster",
                id="cluster-not-named",
            ),
            pytest.param(
                "current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
                "clusters: [{name: c, cluster: {server: 10.0.0.1}}]",
                "cluster c has no server that is an http",
                id="no-url",
            ),
            pytest.param(
                "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
                "clusters: [{name: c, cluster: {server: 'https://x'}}]",
                "no user u, which context a names",
                id="no-user",
            ),
        ],
    )
    def test_what_is_wrong_is_named_with_its_file(
        self, tmp_path: Path, text: str, said: str
    ) -> None:
        path = tmp_path / "k"
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(UsageError) as raised:
            choose([path], None)
        assert said in str(raised.value)
        assert str(path) in str(raised.value)

    def test_one_that_may_not_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot read kubeconfig"):
            choose([tmp_path / "gone"], None)

    def test_a_mistyped_context_is_told_the_nearest(self, tmp_path: Path) -> None:
        path = write_kubeconfig(tmp_path / "k", "https://x")
        with pytest.raises(UsageError, match="no context hera") as raised:
            choose([path], "hera")
        assert raised.value.hint == "did you mean here?"

    def test_the_first_file_wins_as_in_kubectl(self, tmp_path: Path) -> None:
        a = write_kubeconfig(tmp_path / "a", "https://first", namespace="one")
        b = write_kubeconfig(tmp_path / "b", "https://second", namespace="two")
        chosen = choose([a, b], None)
        assert (chosen.server, chosen.namespace) == ("https://first", "one")

    def test_paths_are_relative_to_the_file(self, tmp_path: Path) -> None:
        path = write_kubeconfig(
            tmp_path / "k", "https://x", cluster={"certificate-authority": "ca.pem"}
        )
        assert choose([path], None).cluster["certificate-authority"] == str(tmp_path / "ca.pem")

    def test_a_certificate_that_is_not_there(self, tmp_path: Path, home: dict[str, str]) -> None:
        path = write_kubeconfig(
            tmp_path / "k", "https://x", cluster={"certificate-authority": "gone.pem"}
        )
        with pytest.raises(UsageError, match="gone.pem"):
            Login(str(path), None, None, home)(1.0)

    def test_a_key_that_is_none(
        self, tmp_path: Path, home: dict[str, str], certificates: Certificates
    ) -> None:
        bad = tmp_path / "bad.pem"
        bad.write_text("x")
        user = {"client-certificate": str(bad), "client-key": str(bad)}
        path = write_kubeconfig(tmp_path / "k", "https://x", user=user)
        with pytest.raises(UsageError, match="a certificate or key cannot be used"):
            Login(str(path), None, None, home)(1.0)

    def test_a_user_without_credentials_is_nobody_on_purpose(
        self, tmp_path: Path, home: dict[str, str], api: ApiServer
    ) -> None:
        path = write_kubeconfig(tmp_path / "k", api.url, user={})
        Cluster.connect(str(path), environment=home)
        assert "authorization" not in api.asked[-1].headers

    @pytest.mark.parametrize(
        "user",
        [
            pytest.param({"auth-provider": {"name": "azure", "config": {}}}, id="azure"),
            pytest.param({"username": "u"}, id="half"),
            pytest.param(
                {"auth-provider": {"name": "oidc", "config": {"id-token": "no+jwt"}}}, id="oidc"
            ),
        ],
    )
    def test_a_login_that_is_not_known_is_not_nobody(
        self, tmp_path: Path, home: dict[str, str], user: dict[str, Any]
    ) -> None:
        path = write_kubeconfig(tmp_path / "k", "https://x", user=user)
        with pytest.raises(CredentialsError, match="has no credentials that can be used"):
            Login(str(path), None, None, home)(1.0)

    def test_basic_credentials(self, tmp_path: Path, home: dict[str, str], api: ApiServer) -> None:
        user = {"username": "u", "password": "p"}
        path = write_kubeconfig(tmp_path / "k", api.url, user=user)
        Cluster.connect(str(path), environment=home)
        assert api.asked[-1].headers["authorization"] == "Basic dTpw"


class TestTokenFile:
    def test_it_is_read_again(self, tmp_path: Path, home: dict[str, str], api: ApiServer) -> None:
        file = tmp_path / "token"
        file.write_text("one\n")
        path = write_kubeconfig(tmp_path / "k", api.url, user={"tokenFile": "token"})
        cluster = Cluster.connect(str(path), environment=home)
        assert api.asked[-1].headers["authorization"] == "Bearer one"
        file.write_text("two\n")
        api.script = lambda asked: (
            status(401, "Unauthorized", "Unauthorized")
            if asked.headers.get("authorization") == "Bearer one"
            else listed()
            if asked.path == PODS
            else None
        )
        assert cluster.list("v1", "Pod") == []

    def test_one_that_is_gone(self, tmp_path: Path, home: dict[str, str]) -> None:
        path = write_kubeconfig(tmp_path / "k", "https://x", user={"tokenFile": "token"})
        with pytest.raises(CredentialsError, match="No such file"):
            Login(str(path), None, None, home)(1.0)


class TestPlugin:
    def login(self, tmp_path: Path, home: dict[str, str], user: dict[str, Any]) -> Any:
        path = write_kubeconfig(tmp_path / "k", "https://x", user=user)
        return Login(str(path), None, None, home)(2.0)

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            pytest.param("echo SSO expired >&2; exit 255", "failed with 255: SSO expired", id="b"),
            pytest.param("echo please login", "printed no ExecCredential: please login", id="c"),
            pytest.param(
                credential(token="x").replace("/v1", "/v1beta1"),
                "speaks client.authentication.k8s.io/v1beta1, the kubeconfig says",
                id="d-another-version",
            ),
            pytest.param(credential(), "gave neither a token nor a certificate", id="nothing"),
            pytest.param(credential(clientCertificateData="x"), "neither a token", id="half"),
            pytest.param("echo '[]'", "printed no ExecCredential", id="another-object"),
            pytest.param("kill -9 $$", "failed with -9", id="killed"),
            pytest.param(
                credential(token="x", expirationTimestamp="soon"),
                "gave 'soon' as a time",
                id="time",
            ),
        ],
    )
    def test_one_that_fails_is_heard_and_nobody_goes_on(
        self, tmp_path: Path, home: dict[str, str], script: str, said: str
    ) -> None:
        with pytest.raises(CredentialsError) as raised:
            self.login(tmp_path, home, plugin(tmp_path / "aws", script))
        assert said in str(raised.value)
        assert "aws" in str(raised.value)
        assert raised.value.exit_code == ExitCode.UNKNOWN

    def test_one_that_is_missing_has_its_own_advice(
        self, tmp_path: Path, home: dict[str, str]
    ) -> None:
        spec = {"apiVersion": V1, "command": "/nonexistent/aws", "installHint": "get\nit there"}
        with pytest.raises(CredentialsError, match="plugin aws is not there") as raised:
            self.login(tmp_path, home, {"exec": spec})
        assert raised.value.hint == "get it there"

    def test_one_that_hangs_is_ended_with_all_it_started(
        self, tmp_path: Path, home: dict[str, str]
    ) -> None:
        mark = tmp_path / "pid"
        script = f"echo open the browser >&2; sleep 60 & echo $! > {mark}; wait"
        path = write_kubeconfig(tmp_path / "k", "https://x", user=plugin(tmp_path / "sso", script))
        began = time.monotonic()
        with pytest.raises(CredentialsError, match="gave nothing within 1.5 s: open the browser"):
            Login(str(path), None, None, home)(1.5)
        assert time.monotonic() - began < 30.0
        assert ended(int(mark.read_text()))

    def test_secrets_in_its_words_stay_here(self, tmp_path: Path, home: dict[str, str]) -> None:
        script = "echo 'bad Authorization: Basic c2VjcmV0OnBhc3M=' >&2; exit 1"
        with pytest.raises(CredentialsError) as raised:
            self.login(tmp_path, home, plugin(tmp_path / "p", script))
        assert "c2VjcmV0" not in str(raised.value)

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            pytest.param({"apiVersion": "v1"}, "apiVersion 'v1' is none of", id="version"),
            pytest.param({"interactiveMode": "Always"}, "wants to ask you something", id="asks"),
            pytest.param({"env": [{"name": "A"}]}, "env must be a list", id="env"),
            pytest.param({"args": "x"}, "args must be a list", id="args"),
            pytest.param({"command": None}, "has no command", id="command"),
        ],
    )
    def test_an_entry_that_is_wrong(
        self, tmp_path: Path, home: dict[str, str], more: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(CredentialsError, match=said):
            self.login(tmp_path, home, plugin(tmp_path / "p", credential(token="x"), **more))

    def test_what_it_is_told(self, tmp_path: Path, home: dict[str, str]) -> None:
        script = (
            f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told; echo "$1 $A" > {tmp_path}/words\n'
        )
        user = plugin(
            tmp_path / "p",
            script + credential(token="x"),
            args=["get-token"],
            env=[{"name": "A", "value": "b"}],
            provideClusterInfo=True,
        )
        self.login(tmp_path, home, user)
        told = json.loads((tmp_path / "told").read_text())
        assert told["spec"] == {"interactive": False, "cluster": {"server": "https://x"}}
        assert (tmp_path / "words").read_text() == "get-token b\n"

    def test_null_for_env_and_args_is_none(self, tmp_path: Path, home: dict[str, str]) -> None:
        user = plugin(tmp_path / "p", credential(token="x"), env=None, args=None)
        assert self.login(tmp_path, home, user).configuration.api_key["BearerToken"] == "Bearer x"

    def test_a_command_with_a_slash_lies_beside_the_kubeconfig(
        self, tmp_path: Path, home: dict[str, str]
    ) -> None:
        user = plugin(tmp_path / "p", credential(token="x"))
        user["exec"]["command"] = "./p"
        assert self.login(tmp_path, home, user).configuration.api_key

    def test_a_certificate_of_its_own(
        self, tmp_path: Path, home: dict[str, str], certificates: Certificates
    ) -> None:
        given = credential(
            clientCertificateData=certificates.pem("client").read_text(),
            clientKeyData=certificates.key("client").read_text(),
        )
        with ApiServer(tls=certificates.server(clients=True)) as api:
            path = write_kubeconfig(
                tmp_path / "k",
                api.url,
                user=plugin(tmp_path / "p", given),
                cluster={"certificate-authority": str(certificates.ca)},
            )
            cluster = Cluster.connect(str(path), environment=home)
            assert cluster.version() == (1, 37)
            key_file = cluster.credentials().configuration.key_file
            assert key_file
            assert not Path(key_file).exists(), "a key was left in a file"

    def test_it_runs_once_while_its_token_holds(
        self, tmp_path: Path, home: dict[str, str], api: ApiServer
    ) -> None:
        runs = tmp_path / "runs"
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        script = f"echo x >> {runs}\n" + credential(token="x", expirationTimestamp=later)
        path = write_kubeconfig(tmp_path / "k", api.url, user=plugin(tmp_path / "p", script))
        api.script = lambda asked: listed() if asked.path == PODS else None
        cluster = Cluster.connect(str(path), environment=home)
        for _ in range(3):
            cluster.list("v1", "Pod")
        assert runs.read_text() == "x\n"

    def test_it_runs_again_once_its_token_ended(
        self, tmp_path: Path, home: dict[str, str], api: ApiServer
    ) -> None:
        runs = tmp_path / "runs"
        soon = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
        script = f"echo x >> {runs}\n" + credential(token="x", expirationTimestamp=soon)
        path = write_kubeconfig(tmp_path / "k", api.url, user=plugin(tmp_path / "p", script))
        api.script = lambda asked: listed() if asked.path == PODS else None
        Cluster.connect(str(path), environment=home).list("v1", "Pod")
        assert len(runs.read_text().split()) > 1

    def test_a_refused_token_is_asked_for_anew_once(
        self, tmp_path: Path, home: dict[str, str], api: ApiServer
    ) -> None:
        runs = tmp_path / "runs"
        script = f'echo x >> {runs}; T=t$(wc -l < {runs})\ncat <<E\n{{"apiVersion": "{V1}", '
        script += '"kind": "ExecCredential", "status": {"token": "$T"}}\nE'
        path = write_kubeconfig(tmp_path / "k", api.url, user=plugin(tmp_path / "p", script))
        cluster = Cluster.connect(str(path), environment=home)

        def answer(asked: Question) -> Reply | None:
            if asked.path != PODS:
                return None
            fresh = asked.headers["authorization"] == "Bearer t2"
            return listed() if fresh else status(401, "Unauthorized", "Unauthorized")

        api.script = answer
        assert cluster.list("v1", "Pod") == []
        assert runs.read_text() == "x\nx\n"


class TestInCluster:
    def account(self, tmp_path: Path, certificates: Certificates) -> Path:
        folder = tmp_path / "account"
        folder.mkdir()
        (folder / "token").write_text("pods-own")
        (folder / "namespace").write_text("serving\n")
        (folder / "ca.crt").write_bytes(certificates.ca.read_bytes())
        return folder

    def test_a_pods_own_account(
        self, tmp_path: Path, home: dict[str, str], certificates: Certificates
    ) -> None:
        folder = self.account(tmp_path, certificates)
        with ApiServer(tls=certificates.server()) as api:
            env = home | {
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(api.port),
            }
            cluster = Cluster(Login(None, None, None, env, folder), 5.0)
            api.script = lambda asked: listed() if asked.path.endswith("/serving/pods") else None
            assert cluster.list("v1", "Pod") == []
            assert (cluster.context, cluster.namespace) == ("in-cluster", "serving")
            assert api.asked[-1].headers["authorization"] == "bearer pods-own"

    def test_without_a_token(
        self, tmp_path: Path, home: dict[str, str], certificates: Certificates
    ) -> None:
        folder = self.account(tmp_path, certificates)
        (folder / "token").unlink()
        env = home | {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
        with pytest.raises(CredentialsError, match="inside the cluster") as raised:
            Login(None, None, None, env, folder)(1.0)
        assert "automountServiceAccountToken" in str(raised.value.hint)

    def test_a_context_needs_a_kubeconfig(self, tmp_path: Path, home: dict[str, str]) -> None:
        env = home | {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
        with pytest.raises(UsageError, match="there is no kubeconfig here"):
            Login(None, "prod", None, env, tmp_path)(1.0)
