from __future__ import annotations

from pathlib import Path

import pytest

from speccli.core.errors import UsageError
from speccli.core.sources.scrape import Access
from tests.support.certs import Certificates
from tests.support.scraping import PAGE, scrape, state_of
from tests.support.servers import Server, answering


async def test_a_certificate_of_an_unknown_authority_is_refused_with_words(
    certificates: Certificates,
) -> None:
    async with Server(answering(PAGE), tls=certificates.server()) as server:
        found = await scrape(server.url)
    assert (found.error or "").startswith("certificate not accepted: ")
    assert "unable to get local issuer certificate" in (found.error or "")
    assert "--ca" in (found.error or "")
    assert state_of(found)[0] == "down"


async def test_a_self_signed_certificate_is_named_as_that(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server("ca")) as server:
        found = await scrape(server.url)
    assert "self-signed certificate" in (found.error or "")


async def test_the_authority_can_be_given(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server()) as server:
        access = Access(ca_file=certificates.ca)
        assert (await scrape(server.url, access=access)).status == 200


async def test_any_certificate_can_be_accepted(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server("expired")) as server:
        assert (await scrape(server.url, access=Access(insecure=True))).status == 200


async def test_an_expired_certificate_is_named_as_that(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server("expired")) as server:
        found = await scrape(server.url, access=Access(ca_file=certificates.ca))
    assert found.error == "certificate has expired"
    assert "--ca" not in (found.error or "")


async def test_a_certificate_that_is_expired_and_of_an_unknown_authority_is_named_as_both(
    certificates: Certificates,
) -> None:
    async with Server(answering(PAGE), tls=certificates.server("expired")) as server:
        found = await scrape(server.url)
    assert (found.error or "").startswith(
        "certificate has expired, and is not accepted: unable to get local issuer certificate"
    )


async def test_another_hosts_certificate_is_named_as_that(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server("other")) as server:
        found = await scrape(server.url, access=Access(ca_file=certificates.ca))
    assert "IP address mismatch" in (found.error or "")
    assert "--ca" not in (found.error or "")


async def test_a_client_certificate_is_shown_where_one_is_wanted(
    certificates: Certificates,
) -> None:
    async with Server(answering(PAGE), tls=certificates.server(clients=True)) as server:
        without = await scrape(server.url, access=Access(ca_file=certificates.ca))
        assert without.error
        access = Access(
            ca_file=certificates.ca,
            cert_file=certificates.pem("client"),
            key_file=certificates.key("client"),
        )
        assert (await scrape(server.url, access=access)).status == 200


async def test_tls_spoken_to_a_plain_server_says_what_it_may_be() -> None:
    async with Server(answering(PAGE)) as server:
        found = await scrape(server.url.replace("http:", "https:"))
    assert found.error == "TLS failed: it speaks plain http? use http://"


async def test_plain_http_spoken_to_a_tls_server_is_no_answer(certificates: Certificates) -> None:
    async with Server(answering(PAGE), tls=certificates.server()) as server:
        found = await scrape(server.url.replace("https:", "http:"))
    assert found.error == "it speaks TLS? use https://"


async def test_a_proxy_that_says_itself_that_it_wants_tls_is_understood() -> None:
    said = "<center>The plain HTTP request was sent to HTTPS port</center>"
    async with Server(answering(said, status=400)) as server:
        found = await scrape(server.url)
    assert found.error == "it speaks TLS? use https://"


@pytest.mark.parametrize("which", ["ca", "cert", "key"])
@pytest.mark.parametrize("content", [None, "not PEM\n"], ids=["missing", "not-pem"])
async def test_a_certificate_file_that_cannot_be_used_is_named(
    tmp_path: Path, certificates: Certificates, which: str, content: str | None
) -> None:
    bad = tmp_path / f"bad-{which}.pem"
    if content is not None:
        bad.write_text(content)
    files = {
        "ca": certificates.ca,
        "cert": certificates.pem("client"),
        "key": certificates.key("client"),
        which: bad,
    }
    access = Access(ca_file=files["ca"], cert_file=files["cert"], key_file=files["key"])
    with pytest.raises(UsageError, match="certificate file") as caught:
        access.ssl_context()
    named = {"ca": "bad-ca", "cert": "bad-cert", "key": "bad-key" if content is None else "client"}
    assert named[which] in caught.value.message
    assert "\n" not in caught.value.message


def test_an_encrypted_key_is_refused_rather_than_asked_for(certificates: Certificates) -> None:
    access = Access(cert_file=certificates.pem("client"), key_file=certificates.key("encrypted"))
    with pytest.raises(UsageError, match="encrypted"):
        access.ssl_context()


def test_a_key_alone_is_half_of_what_is_needed(certificates: Certificates) -> None:
    with pytest.raises(UsageError, match="--key without --cert"):
        Access(key_file=certificates.key("client")).ssl_context()
