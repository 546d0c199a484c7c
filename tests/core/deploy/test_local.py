"""A recipe as a process of this machine: started once, proven, replaced, ended for sure."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from speccli.core.deploy import local, supervisor
from speccli.core.deploy.asked import Asked
from speccli.core.deploy.changeover import begin
from speccli.core.deploy.gate import GateError
from speccli.core.deploy.look import deployed_here, on_this_machine
from speccli.core.deploy.place import DeletedError, Here, alone, ask_at, delete, is_kept, place
from speccli.core.deploy.wanted import Launch, Wanted, holder
from speccli.core.errors import ExitCode, SpecctlError, UsageError
from speccli.core.kube.proven import ServerProof, Verdict
from speccli.core.recipes.load import load
from speccli.core.sources.identify import identify
from speccli.core.sources.targets import parse_target

ENGINE = """
import json, os, sys, time
model, _, host, _, port, *rest = sys.argv[1:]
print("non-default args: {}", flush=True)
flag = "--speculative-config"
asked = json.loads(rest[rest.index(flag) + 1]) if flag in rest else {}
if os.environ.get("BREAK"):
    print("ValueError: draft and target vocabularies differ", flush=True)
    sys.exit(3)
if os.environ.get("SLOW"):
    time.sleep(60)
method = "none" if os.environ.get("SILENT") else asked.get("method", "none")
words = ["sim", "--engines", "1", "--host", host, "--port", port, "--rate", "0", "--method", method]
if os.environ.get("USELESS"):
    words += ["--acceptance", ",".join("0" * asked["num_speculative_tokens"])]
os.execv(sys.executable, [sys.executable, "-m", "speccli", *words])
"""
RECIPE = """
name: tiny
target: {model: meta-llama/Llama-3.3-70B-Instruct}
draft: {method: ngram, K: 4, prompt_lookup_max: 4, prompt_lookup_min: 2}
hardware: {gpu: h200, count: 2}
serving: {tensor_parallel: 2, shutdown_timeout_s: 1, max_num_seqs: 16, max_model_len: 8192}
"""
Deploy = Callable[..., local.LocalOutcome]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Deploy]:
    """Deploys the recipe with `--set` changes; whatever runs at the end is ended."""
    recipe, engine = tmp_path / "tiny.yaml", tmp_path / "engine.py"
    recipe.write_text(RECIPE)
    engine.write_text(ENGINE)
    said: list[str] = []

    def go(*changes: str, timeout_s: float = 60.0, **more: object) -> local.LocalOutcome:
        asked = Asked(load(str(recipe), changes), timeout_s=timeout_s, **more)  # type: ignore[arg-type]
        return local.deploy(
            tmp_path, asked, said.append, python=Path(sys.executable), launcher=[str(engine)]
        )

    yield go
    here = place(tmp_path, "tiny")
    if here.alive:
        delete(here, said.append)


def here_of(tmp_path: Path) -> Here:
    return place(tmp_path, "tiny")


def test_critical_findings_start_nothing(deploy: Deploy, tmp_path: Path) -> None:
    with pytest.raises(GateError, match="PLAN_MEMORY"):
        deploy("hardware.count=1", "serving.tensor_parallel=1", "target.quantization=bf16")
    assert not (tmp_path / "local").exists()


@pytest.mark.slow
def test_an_engine_is_started_proven_kept_replaced_and_ended(
    deploy: Deploy, tmp_path: Path
) -> None:
    first = deploy()
    assert (first.exit_code, first.record.current.state) == (ExitCode.OK, "ready")
    assert first.proof is not None
    assert first.proof.verdict == "proven"
    assert first.proof.simulated
    here = here_of(tmp_path)
    pid, before = engine_of(here), (here.folder / "record.json").read_bytes()

    again = deploy()
    assert again.unchanged
    assert engine_of(here) == pid, "it was restarted"
    assert (here.folder / "record.json").read_bytes() == before

    changed = deploy("draft.K=3")
    assert changed.record.current.number == 2
    assert changed.url == first.url, "clients lost the address"
    assert engine_of(here) != pid
    assert gone(pid)

    back = local.restored(here, None)
    assert back.recipe.draft.k == 4
    assert back.restores == 1

    assert [told.name for told, *_ in on_this_machine(tmp_path)[0]] == ["tiny"]
    supervisor = holder(here.folder)
    delete(here, lambda _: None)
    assert not here.folder.exists()
    assert supervisor is not None
    assert gone(supervisor)


@pytest.mark.slow
def test_its_address_tells_what_was_deployed_on_purpose(deploy: Deploy) -> None:
    async def told(url: str) -> dict[str, str]:
        async with ClientSession() as session:
            return await identify(session, parse_target(url), {})

    silent = deploy("engine.env={SILENT: '1'}")
    info = asyncio.run(told(silent.url))
    assert (info["method"], info["meant"]) == ("none", "ngram")
    plain = deploy("draft={method: none}")
    assert plain.url == silent.url
    info = asyncio.run(told(plain.url))
    assert (info["method"], info["meant"]) == ("none", "none")


def engine_of(here: Here) -> int:
    """The process of the one engine there is."""
    (pid,) = here.told.pids.values()
    return pid


def gone(pid: int, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":  # its parent is this test
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_an_engine_that_dies_says_its_last_words(deploy: Deploy, tmp_path: Path) -> None:
    outcome = deploy("engine.env.BREAK=1")
    assert outcome.exit_code is ExitCode.CRITICAL
    assert "draft and target vocabularies differ" in outcome.why
    assert outcome.record.current.state == "failed"
    assert deployed_here(here_of(tmp_path)).words.startswith("not running: the engine ended")


@pytest.mark.slow
def test_an_engine_that_does_not_speculate_is_found_out(deploy: Deploy) -> None:
    outcome = deploy("engine.env.SILENT=1")
    assert outcome.exit_code is not ExitCode.OK
    assert outcome.proof is not None
    assert outcome.proof.verdict != "proven"


@pytest.mark.slow
def test_a_start_that_was_not_waited_for_is_completed_by_the_same_again(
    deploy: Deploy, tmp_path: Path
) -> None:
    assert deploy(wait=False).end is None
    pid = holder(here_of(tmp_path).folder)
    outcome = deploy()
    assert outcome.exit_code is ExitCode.OK
    assert holder(here_of(tmp_path).folder) == pid


@pytest.mark.slow
def test_an_engine_does_not_outlive_its_supervisor(deploy: Deploy, tmp_path: Path) -> None:
    outcome = deploy()
    here = here_of(tmp_path)
    pid = holder(here.folder)
    assert pid
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while here.healthy() and time.monotonic() < until:
        time.sleep(0.05)
    assert not here.alive
    with pytest.raises(Exception, match="no answer"):
        ask_at(outcome.url, 2.0)("GET", "/health")


def test_what_is_not_kept_is_no_deployment(tmp_path: Path) -> None:
    assert not is_kept(tmp_path, "tiny")
    assert not is_kept(tmp_path, "../tiny")
    with pytest.raises(UsageError, match="no local deployment"):
        deployed_here(here_of(tmp_path))


def test_a_port_that_somebody_else_took_is_not_deployed_on(deploy: Deploy, tmp_path: Path) -> None:
    """Its server would be asked, and proven."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        here = here_of(tmp_path)
        here.folder.mkdir(parents=True)
        launch = Launch(1, "x", sys.executable, "m", (), {}, port, 1.0)
        (here.folder / "wanted.json").write_text(Wanted(port, 1, (launch,)).text())
        with pytest.raises(SpecctlError, match=f"port {port}, which tiny has, is taken"):
            deploy(wait=False)
    assert not here.alive


def test_two_deploy_one_after_the_other(deploy: Deploy, tmp_path: Path) -> None:
    with (
        alone(here_of(tmp_path), print),
        pytest.raises(SpecctlError, match=f"tiny is being deployed by process {os.getpid()}"),
    ):
        deploy()
    with alone(here_of(tmp_path), print):
        pass


def test_a_record_that_was_deleted_is_not_written_again(tmp_path: Path) -> None:
    here = here_of(tmp_path)
    with alone(here, print) as standing:
        with standing.held():
            (here.folder / "record.json").write_text("{}")
        delete(here, lambda _: None)
        with pytest.raises(DeletedError, match="tiny was deleted meanwhile"), standing.held():
            pytest.fail("it is changed")
        with alone(here, print), pytest.raises(DeletedError), standing.held():
            pytest.fail("it is another one's now")


def test_a_revision_of_what_is_deleted_meanwhile_is_not_restored(
    deploy: Deploy, tmp_path: Path
) -> None:
    with pytest.raises(DeletedError, match="tiny was deleted meanwhile"):
        deploy(restores=1)
    assert not is_kept(tmp_path, "tiny")


def test_who_waits_for_another_says_so_and_not_for_ever(tmp_path: Path) -> None:
    here, said = here_of(tmp_path), list[str]()
    with alone(here, print) as standing:
        (here.folder / "record.json").write_text("{}")
        with standing.held(), pytest.raises(SpecctlError, match="does not come to an end"):
            delete(here, said.append, 0.2)
        assert said == ["waiting for another process that deploys or deletes it"]
        said.clear()
        with (
            standing.held(fcntl.LOCK_EX),
            pytest.raises(SpecctlError, match="that deletes it does not come to an end"),
            alone(here, said.append, 0.2),
        ):
            pytest.fail("it is deployed")
    assert said == ["waiting for another process that deletes it"]
    assert is_kept(tmp_path, "tiny")


def test_a_second_delete_leaves_what_was_deployed_anew_in_between(tmp_path: Path) -> None:
    """It waited for the first, and what it was to delete is gone."""
    here, said = here_of(tmp_path), list[str]()
    waits = threading.Event()

    def say(words: str) -> None:
        said.append(words)
        waits.set()

    second = threading.Thread(target=delete, args=(here, say))
    with alone(here, print) as standing, standing.held(fcntl.LOCK_EX):
        second.start()
        assert waits.wait(60)
        shutil.rmtree(here.folder)  # as the first does, while it has the lock
        with alone(here, print):
            (here.folder / "record.json").write_text("{}")
    second.join(60)
    assert said[-1] == "tiny was deleted by another process meanwhile"
    assert is_kept(tmp_path, "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["proven", "refuted"])
@pytest.mark.parametrize("former", [False, True], ids=["the-first", "beside-a-former"])
def test_what_is_deleted_while_it_is_proven_leaves_no_record(
    verdict: Verdict,
    former: bool,
    deploy: Deploy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = here_of(tmp_path)
    if former:
        deploy()

    def prove_and_delete(*_: object) -> ServerProof:
        assert is_kept(tmp_path, "tiny")
        delete(here, lambda _: None)
        return ServerProof("http://x", "main", verdict, "ngram", "")

    monkeypatch.setattr(local, "prove", prove_and_delete)
    with pytest.raises(DeletedError, match="tiny was deleted meanwhile") as told:
        deploy("draft.K=3", beside=True)
    assert told.value.exit_code is ExitCode.CRITICAL
    assert not here.folder.exists()


@pytest.mark.slow
def test_a_delete_waits_for_a_deploy_that_is_about_to_start_the_engine(
    deploy: Deploy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes it away whole, after it; nothing is waited for there, so nobody else would."""
    here, said = here_of(tmp_path), list[str]()
    waits = threading.Event()

    def say(words: str) -> None:
        said.append(words)
        waits.set()

    deleting = threading.Thread(target=delete, args=(here, say))

    def begin_while_deleting(*args: object, **more: object) -> object:
        deleting.start()
        assert waits.wait(60)
        return begin(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "begin", begin_while_deleting)
    outcome = deploy(wait=False)
    deleting.join(60)
    assert outcome.record.current.state == "applied"
    assert said[0] == "waiting for another process that deploys or deletes it"
    assert said[-1] == f"removed {here.folder}"
    assert not here.folder.exists()
    assert not here.alive


def test_a_look_at_the_lock_keeps_no_supervisor_from_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("a+") as looking, path.open("a+") as taking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        assert supervisor._locked(taking)
