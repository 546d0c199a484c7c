"""How to be let in by an API server, and when that has to be renewed.

What the Kubernetes client can read of a kubeconfig it reads; what it would pass over in silence
(plugins that fail, token files that changed, users without credentials) is settled here.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from speccli.core.errors import UsageError
from speccli.core.kube.errors import CredentialsError
from speccli.core.kube.kubeconfig import Chosen, choose, kubeconfig_files
from speccli.core.kube.plugin import run_plugin

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SKEW = timedelta(seconds=20)
"""Credentials are renewed this long before they end."""
_REREAD = timedelta(minutes=1)
"""Token files rotate: one is read again after so long."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where to and as whom, ready to be used."""

    context: str
    """`in-cluster` where there is no kubeconfig."""
    server: str
    namespace: str
    configuration: Any
    """`kubernetes.client.Configuration`, with the token, the proxy and the server's name."""
    tls: ssl.SSLContext | None
    """None over plain http."""
    expires: datetime | None
    """When they have to be renewed; None: when the server says so."""
    identity: bytes
    """What tells this cluster from another at the same address: its certificate authority."""

    @property
    def authorization(self) -> str | None:
        """What is sent as `Authorization`; None where a certificate says who asks."""
        told = self.configuration.auth_settings().get("BearerToken")
        return str(told["value"]) if told else None

    def stale(self, now: datetime) -> bool:
        """Whether they must be renewed before they are used."""
        return self.expires is not None and self.expires - _SKEW <= now


@dataclass(frozen=True, slots=True)
class Login:
    """What was asked for, to log in with again."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    environment: Mapping[str, str]
    service_account: Path = SERVICE_ACCOUNT

    def __call__(self, deadline_s: float) -> Credentials:
        """Read the kubeconfig (or the pod's account) and run its plugin.

        Raises:
            UsageError: no kubeconfig, or one that cannot be used.
            CredentialsError: its credentials could not be had.
        """
        files = kubeconfig_files(self.kubeconfig, self.environment)
        if not files:
            return self._in_cluster()
        chosen = choose(files, self.context)
        namespace = self.namespace or chosen.namespace or "default"
        user, expires = _settled(chosen, self.environment, deadline_s)
        configuration = _configuration(chosen, user)
        tls = _tls(configuration, chosen)
        if user.get("client-key-data"):  # the client has put it in a file, and is done with it
            with suppress(OSError):
                Path(configuration.key_file).unlink()
        return Credentials(
            chosen.context,
            chosen.server,
            namespace,
            configuration,
            tls,
            expires,
            _authority(configuration),
        )

    def _in_cluster(self) -> Credentials:
        from kubernetes.client import Configuration
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.incluster_config import InClusterConfigLoader

        folder = self.service_account
        if "KUBERNETES_SERVICE_HOST" not in self.environment:
            raise UsageError(
                "no kubeconfig: neither --kubeconfig nor KUBECONFIG nor ~/.kube/config",
                hint="give --kubeconfig FILE",
            )
        if self.context:
            raise UsageError(
                f"--context {self.context}: there is no kubeconfig here", hint="give --kubeconfig"
            )
        configuration = Configuration()
        loader = InClusterConfigLoader(
            str(folder / "token"), str(folder / "ca.crt"), False, self.environment
        )
        try:
            loader.load_and_set(configuration)
            own = (folder / "namespace").read_text().strip()
        except (ConfigException, OSError) as error:
            raise CredentialsError(
                f"inside the cluster, and {folder} cannot be used: {error}",
                hint="set automountServiceAccountToken, or give --kubeconfig",
            ) from error
        return Credentials(
            "in-cluster",
            configuration.host,
            self.namespace or own or "default",
            configuration,
            _tls(configuration, None),
            datetime.now(UTC) + _REREAD,
            _authority(configuration),
        )


def _settled(
    chosen: Chosen, environment: Mapping[str, str], deadline_s: float
) -> tuple[dict[str, Any], datetime | None]:
    """The user's entry with what a plugin or a token file gives put in its place."""
    user = dict(chosen.user)
    spec = user.pop("exec", None)
    if isinstance(spec, dict) and not (user.get("token") or user.get("tokenFile")):
        given = run_plugin(
            spec,
            folder=chosen.file.parent,
            cluster=chosen.cluster,
            environment=environment,
            deadline_s=deadline_s,
        )
        if given.token:
            user["token"] = given.token
        if given.certificate and given.key:
            user["client-certificate-data"] = _encoded(given.certificate)
            user["client-key-data"] = _encoded(given.key)
        return user, given.expires
    if file := user.pop("tokenFile", None):
        try:
            user["token"] = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise CredentialsError(
                f"token file {file} of user {chosen.user_name}: {why}"
            ) from error
        return user, datetime.now(UTC) + _REREAD
    return user, None


def _encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def _configuration(chosen: Chosen, user: dict[str, Any]) -> Any:
    """The client's own settings; nobody's credentials only where the kubeconfig has none."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config_from_dict

    content = {
        "current-context": "chosen",
        "contexts": [{"name": "chosen", "context": {"cluster": "it", "user": "one"}}],
        "clusters": [{"name": "it", "cluster": dict(chosen.cluster)}],
        "users": [{"name": "one", "user": user}],
    }
    configuration = Configuration()
    try:
        load_kube_config_from_dict(content, client_configuration=configuration)
    except (ConfigException, ValueError, KeyError, TypeError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(
            f"kubeconfig {chosen.file}: context {chosen.context} cannot be used: {why}"
        ) from error
    if chosen.user and not (configuration.api_key or configuration.cert_file):
        raise CredentialsError(
            f"user {chosen.user_name} in {chosen.file} has no credentials that can be used "
            f"({', '.join(sorted(map(str, chosen.user)))})",
            hint="its kind of login is not known here; use one with a token, a certificate or exec",
        )
    configuration.refresh_api_key_hook = None  # renewed here, on expiry and on a 401
    return configuration


def _tls(configuration: Any, chosen: Chosen | None) -> ssl.SSLContext | None:
    """One context for every connection, whoever opens it."""
    if not configuration.host.startswith("https"):
        return None
    file = chosen.file if chosen else configuration.ssl_ca_cert
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file, _no_password)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise UsageError(f"kubeconfig {file}: a certificate or key cannot be used: {reason}") from (
            error
        )
    # Python 3.13 refuses authorities without a key identifier, as older clusters made them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _authority(configuration: Any) -> bytes:
    with suppress(OSError, TypeError):
        return Path(configuration.ssl_ca_cert).read_bytes()
    return b""
