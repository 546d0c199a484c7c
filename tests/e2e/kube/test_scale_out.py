"""Three times the load on a rendered deployment, end to end; every period is a fifteenth.

benchmarks/scale_out.py runs the same at the rendered periods; docs/scaling.md has its chart.
"""

from __future__ import annotations

import statistics

import pytest

from tests.support.kube.cluster import Cluster, World
from tests.support.kube.scale_out import Pace, Run, scale_out

pytestmark = pytest.mark.real_kubernetes
PACE = Pace(15)
UP, AGAIN = "three times the load", "the load again"


@pytest.fixture(scope="module")
def run(world: World) -> Run:
    """One run for all claims."""
    world.need_keda()
    with Cluster(world) as cluster:
        return scale_out(cluster, PACE)


def _waits(run: Run, start: str, end: str | None = None) -> list[float]:
    return [s.queue_wait_ms for s in run.between(start, end) if s.queue_wait_ms is not None]


def _last_over(run: Run) -> float:
    """When the wait was last over its target while the load was high, s."""
    up = run.between(UP, AGAIN)
    return max(s.at_s for s in up if (s.queue_wait_ms or 0.0) > run.target_ms)


def _first_tokens(run: Run, start: float, end: float) -> list[float]:
    """Seconds to the first token of what clients sent meanwhile."""
    found = [a["first_s"] for a in run.answers if start <= a["sent"] < end]
    return [seconds for seconds in found if seconds is not None]


def test_the_load_is_served_by_the_least_number(run: Run) -> None:
    before = run.between("load", UP)
    assert {s.replicas for s in before} == {run.least}
    assert statistics.median(_waits(run, "load", UP)) < run.target_ms


def test_three_times_the_load_raises_replicas(run: Run) -> None:
    up = run.between(UP, AGAIN)
    assert max(_waits(run, UP, AGAIN)) > run.target_ms
    assert max(s.ready for s in up) > run.least
    assert max(s.replicas for s in up) <= run.most


def test_the_queue_wait_falls_back_under_its_target_while_the_load_lasts(run: Run) -> None:
    over = _last_over(run)
    settled = [s for s in run.between(UP, AGAIN) if s.at_s > over]
    assert len(settled) >= 5, f"over the target until {over} s of {run.phases}"
    # What clients saw says the same: a first token as soon as before the load rose.
    before = _first_tokens(run, run.phases["load"] + 5, run.phases[UP])
    meanwhile = _first_tokens(run, run.phases[UP], over)
    after = _first_tokens(run, over, run.phases[AGAIN])
    assert statistics.median(after) < statistics.median(before) * 2
    assert statistics.quantiles(meanwhile, n=10)[-1] > statistics.quantiles(after, n=10)[-1]


def test_no_loading_pod_is_killed_and_no_request_is_lost(run: Run) -> None:
    assert run.killed_loading == []
    assert any(s.loading for s in run.between(UP, AGAIN))
    failed = [answer for answer in run.answers if answer["status"] != 200]
    assert failed == []
    assert len(run.answers) > 200


def test_it_comes_down_again_after_the_window(run: Run) -> None:
    down, over = run.between(AGAIN), _last_over(run)
    assert down[-1].replicas == down[-1].ready == run.least
    highest = max(s.replicas for s in run.between(UP))
    first = next(s.at_s for s in run.between(UP) if s.replicas < highest and s.at_s > over)
    assert first - over >= run.down_window_s * 0.9
