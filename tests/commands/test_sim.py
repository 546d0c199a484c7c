from __future__ import annotations

import signal
import socket
import urllib.request

import pytest

from tests.support.processes import started
from tests.support.recordings import specctl


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_what_it_prints_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with started("sim", "--engines", "2", "--port", "0", "--scenario", "drift") as process:
        assert process.stdout is not None
        urls = [process.stdout.readline().strip() for _ in range(2)]
        assert len(set(urls)) == 2
        for url in urls:
            with urllib.request.urlopen(f"{url}/metrics", timeout=120) as answer:
                page = answer.read().decode()
            assert "vllm:spec_decode_num_drafts_total" in page
            assert "SIMULATED" in page
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (0, "")
    assert stderr == ("specctl: SIMULATED: 2 server(s) of vLLM 0.32.0, scenario drift\n")


def test_what_it_serves_is_a_status_labelled_simulated() -> None:
    with started("sim", "--engines", "1", "--port", "0", "-k", "3") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answer = specctl("status", "-e", url, "--since-start", "-o", "json")
        table = specctl("status", "-e", url, "--since-start")
        process.terminate()
        process.communicate(timeout=120)
    assert answer.json["simulated"] is True
    assert (answer.engine["method"], answer.engine["k"]) == ("eagle3", 3)
    assert table.stdout.startswith("SIMULATED")


def test_it_ends_after_its_time() -> None:
    answer = specctl("sim", "--engines", "1", "--port", "0", "--for", "0.1s")
    assert answer.exit_code == 0
    assert answer.stdout.startswith("http://127.0.0.1:")


def test_scenarios_can_be_listed() -> None:
    answer = specctl("sim", "--scenario", "list")
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert {"steady", "drift", "cliff", "stall", "restart"} <= {
        line.split()[0] for line in answer.stdout.splitlines()
    }


def test_a_port_in_use_is_64_and_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = specctl("sim", "--engines", "1", "--port", str(port), "--for", "1s")
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert f"cannot listen at 127.0.0.1:{port}" in answer.stderr
    assert "--port 0" in answer.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scenario", "stedy"), "did you mean 'steady'?"),
        (("--method", "egle3"), "did you mean 'eagle3'?"),
        (("--version", "banana"), "not an engine version"),
        (("--acceptance", "a,b"), "--acceptance 'a,b'"),
        (("--acceptance", "2,1,1,1"), "0..1"),
        (("-k", "2", "--acceptance", "0.5"), "K=2"),
        (("--port", "65534", "--engines", "4"), "port must be 0-65535"),
        (("--host", "192.0.2.1"), "cannot listen at 192.0.2.1"),
        (("--speed", "inf"), "--speed"),
        (("--rate", "1e9"), "--rate"),
        (("--for", "long"), "--for 'long' is not a duration"),
        (("--engines", "0"), "--engines"),
    ],
)
def test_what_cannot_be_simulated_is_64(words: tuple[str, ...], said: str) -> None:
    answer = specctl("sim", *words)
    assert (answer.exit_code, answer.stdout) == (64, "")
    assert said in answer.stderr
    assert len(answer.stderr.splitlines()) <= 2
