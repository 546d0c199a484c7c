"""A real control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.certs import Certificates, make_authority, sign
from tests.support.kube.api import Api
from tests.support.kube.binaries import folder, program
from tests.support.kube.space import HOST, Space

_PORT, _ETCD, _MANAGER, _SCHEDULER = 6443, 2379, 10257, 10259
_PATIENCE_S = 120.0


class Plane:
    """A control plane in a space: `with Plane(folder) as plane`.

    Attributes:
        space: Where it runs; other programs may be started there.
        api: The administrator's client.
        kubeconfig: The administrator's, for programs outside the space.
        kubeconfig_inside: The same for programs inside it.
        server_inside: The API server's URL for programs inside it.
        took: Seconds that each part took to be ready.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: an empty one, for its data and logs."""
        self.folder = folder
        self.took: dict[str, float] = {}

    def __enter__(self) -> Plane:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._bin, etcd = folder("controlplane"), program("etcd", "etcd-server")
        began = time.monotonic()
        self.certs = certificates(self.folder)
        began = self._note("certificates", began)
        self.space = stack.enter_context(Space(self.folder))
        self._start_etcd(etcd)
        self._server = server = self._start_server()
        self.server_inside = f"https://{HOST}:{_PORT}"
        outside = f"https://127.0.0.1:{self.space.forward(_PORT)}"
        self.kubeconfig = self.write_kubeconfig("kubeconfig", outside)
        self.kubeconfig_inside = self.write_kubeconfig("kubeconfig-inside", self.server_inside)
        self.api = Api(self.kubeconfig)
        self._wait(server)
        began = self._note("etcd and kube-apiserver", began)
        self._start_controllers()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """The API server answers nobody inside the block, and goes on after it."""
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    def _note(self, what: str, began: float) -> float:
        now = time.monotonic()
        self.took[what] = now - began
        return now

    def _start_etcd(self, etcd: str) -> None:
        client, peer = f"http://{HOST}:{_ETCD}", f"http://{HOST}:{_ETCD + 1}"
        self.space.start(
            "etcd",
            etcd,
            "--data-dir=etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
        )

    def _start_server(self) -> subprocess.Popen[bytes]:
        c = self.certs
        return self.space.start(
            "kube-apiserver",
            self._bin / "kube-apiserver",
            f"--etcd-servers=http://{HOST}:{_ETCD}",
            f"--secure-port={_PORT}",
            f"--advertise-address={HOST}",
            f"--tls-cert-file={c.pem('apiserver')}",
            f"--tls-private-key-file={c.key('apiserver')}",
            f"--client-ca-file={c.ca}",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-issuer=https://{HOST}:{_PORT}/",
            f"--service-account-key-file={c.pem('accounts')}",
            f"--service-account-signing-key-file={c.key('accounts')}",
            # Logs come from the kubelet, whose certificate nobody checks.
            f"--kubelet-client-certificate={c.pem('admin')}",
            f"--kubelet-client-key={c.key('admin')}",
            "--kubelet-preferred-address-types=InternalIP",
            # Aggregated API servers, KEDA's for one, believe who the user is from this certificate.
            f"--proxy-client-cert-file={c.pem('front-proxy')}",
            f"--proxy-client-key-file={c.key('front-proxy')}",
            f"--requestheader-client-ca-file={c.ca}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )

    def _wait(self, server: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(OSError):  # not listening yet, or the forwarder hung up
                if self.api.raw("GET", "/readyz") == (200, b"ok"):
                    return
            log = self.space.log("kube-apiserver").read_text()[-2000:]
            assert server.poll() is None, f"kube-apiserver ended:\n{log}"
            assert time.monotonic() < until, f"kube-apiserver is not ready:\n{log}"
            time.sleep(0.1)

    def _start_controllers(self) -> None:
        common = (f"--kubeconfig={self.kubeconfig_inside}", "--leader-elect=false")
        self.space.start(
            "kube-controller-manager",
            self._bin / "kube-controller-manager",
            *common,
            f"--secure-port={_MANAGER}",
            f"--service-account-private-key-file={self.certs.key('accounts')}",
            f"--root-ca-file={self.certs.ca}",
            # 15 s and 50 s where nobody says; a busy test machine may be late with a heartbeat.
            "--horizontal-pod-autoscaler-sync-period=1s",
            "--node-monitor-grace-period=10m",
        )
        self.space.start(
            "kube-scheduler",
            self._bin / "kube-scheduler",
            *common,
            f"--secure-port={_SCHEDULER}",
        )

    def write_kubeconfig(
        self, name: str, server: str = "", *, token: str | None = None, namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig with everything in it: the administrator's, or one with a token."""

        def inline(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        user: dict[str, Any] = {
            "client-certificate-data": inline(self.certs.pem("admin")),
            "client-key-data": inline(self.certs.key("admin")),
        }
        if token is not None:
            user = {"token": token}
        cluster = {
            "server": server or self.api.server,
            "certificate-authority-data": inline(self.certs.ca),
        }
        context = {"cluster": "real", "user": "user", "namespace": namespace}
        path = self.folder / name
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "real",
                    "contexts": [{"name": "real", "context": context}],
                    "clusters": [{"name": "real", "cluster": cluster}],
                    "users": [{"name": "user", "user": user}],
                }
            )
        )
        return path


def certificates(folder: Path) -> Certificates:
    """An authority, and what the programs of a cluster need."""
    made = make_authority(folder)
    names = f"subjectAltName=DNS:localhost,IP:127.0.0.1,IP:{HOST},IP:10.0.0.1"
    sign(made, "apiserver", names)
    sign(made, "admin", "extendedKeyUsage=clientAuth", subject="/O=system:masters/CN=admin")
    sign(made, "front-proxy", "extendedKeyUsage=clientAuth")
    sign(made, "accounts", "keyUsage=digitalSignature")
    sign(made, "kubelet", "subjectAltName=DNS:localhost")
    sign(made, "keda", f"{names}\nextendedKeyUsage=serverAuth,clientAuth")
    return made
