"""A whole bench: arms × loads × datasets × repeats, kept after every row.

Servers that run already are measured interleaved: the arms of one load, dataset and repeat follow
each other at once, in an order that rotates, so that what drifts (clocks, heat, neighbours) meets
all of them. Servers that are started here are measured one after the other, in blocks, for there
is room for one; the result says which it was.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from speccli.core.bench import gpu, gpu_readers, provenance, resume, sums
from speccli.core.bench.arms import ArmSpec, Local
from speccli.core.bench.client import Answer
from speccli.core.bench.datasets import Prompts
from speccli.core.bench.form import fault, write
from speccli.core.bench.load import Shape
from speccli.core.bench.measure import Key, MeasureRow, Sampling, measure, now
from speccli.core.bench.progress import Progress
from speccli.core.bench.results import Arm, Load, Result
from speccli.core.bench.started import Up, up
from speccli.core.bench.texts import keep
from speccli.core.errors import SpecctlError, UsageError
from speccli.core.sources.access import Access

_GIVE = "give --nvml where they are this machine's, or --dcgm URL"
_TEMPLATE_TOKENS = 64
"""Room for what a chat template adds."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What is to be measured."""

    name: str
    out: Path
    arms: tuple[ArmSpec, ...]
    baseline: str
    datasets: tuple[Prompts, ...]
    load: Load
    sampling: Sampling
    seed: int = 0
    deadline_s: float = 600.0
    """For one whole answer."""
    start_s: float = 900.0
    """For the start of a server."""
    gpu_count: int | None = None
    """Of each server; None: as its command says, else 1."""
    gpu_hour_usd: float | None = None
    stand_in: str | None = None
    keep_texts: bool = False
    dcgm: str | None = None
    nvml: bool = False
    """Whether servers that specctl did not start have this machine's GPUs."""
    server_logs: Mapping[str, Path] = field(default_factory=dict)
    """What servers print, by arm, where specctl does not start them."""
    access: Access = field(default_factory=Access)
    command: str = ""
    logs: Path | None = None
    """Folder for what started servers print."""
    runner: str = "specctl"
    """What puts the load on."""
    tokenizer: str | None = None
    """Of the target, for runners that want one; None: it goes by the model's name."""

    def rows(self) -> Iterator[Key]:
        """Every row, in the order of an interleaved run."""
        loads: list[tuple[int | None, float | None]]
        loads = [(batch, None) for batch in self.load.batches]
        loads += [(None, rate) for rate in self.load.rates]
        names = [arm.name for arm in self.arms]
        turn = 0
        for repeat in range(self.load.repeats):
            for dataset in self.datasets:
                for batch, rate in loads:
                    for name in names[turn % len(names) :] + names[: turn % len(names)]:
                        yield Key(name, dataset.name, batch, rate, repeat)
                    turn += 1

    def shape(self, key: Key, available: int) -> Shape:
        """The load of a row; `available`: prompts of its dataset."""
        requests = self.load.requests_of(key.batch, key.rate)
        return Shape(
            concurrency=key.batch,
            rate=key.rate,
            warmup=self.load.warmup_of(key.batch, key.rate),
            requests=None if requests is None else min(requests, available),
            seconds=self.load.seconds,
            window=self.load.window,
            seed=self.seed + key.repeat,
        )


async def run(
    spec: Spec,
    progress: Progress,
    before: Result | None = None,
    measure_row: MeasureRow = measure,
) -> Result:
    """Measure what is not measured yet; the file is replaced after every row.

    Args:
        spec: What is to be measured.
        progress: Who is told.
        before: A result to go on with.
        measure_row: What puts the load on.

    Raises:
        UsageError: `before` is of another bench, or the file cannot be written.
        SourceError: a server cannot be asked at the beginning.
    """
    bench = _Bench(spec, progress, before, measure_row)
    await bench.prepare()
    ticking = asyncio.ensure_future(progress.tick())
    try:
        for group in bench.groups():
            await bench.measure_group(group)
    finally:
        ticking.cancel()
        bench.keep()
    return bench.result


class _Bench:
    def __init__(
        self, spec: Spec, progress: Progress, before: Result | None, measure_row: MeasureRow
    ) -> None:
        self._spec, self._progress, self._measure = spec, progress, measure_row
        self._datasets = {each.name: each for each in spec.datasets}
        came = provenance.of(spec.command, spec.seed, spec.sampling, spec.runner)
        if before is not None:
            before = resume.with_commands(before, came)
        self.result = before or Result(
            name=spec.name,
            created=now(),
            finished=None,
            complete=False,
            simulated=False,
            provenance=came,
            load=spec.load,
            datasets=(),
            arms=(),
            rows=(),
            stand_in=spec.stand_in,
            texts={} if spec.keep_texts else None,
        )
        done = {row.key for row in self.result.rows if row.usable}
        self._todo = [
            key
            for key in spec.rows()
            if (key.arm, key.batch, key.rate, key.dataset, key.repeat) not in done
        ]
        self._length: int | None = None
        """The shortest context of the servers seen, tokens."""

    async def prepare(self) -> None:
        """What is known before any server is."""
        local = any(isinstance(arm, Local) for arm in self._spec.arms)
        order = "blocks: one arm after the other" if local else "interleaved, rotating arms"
        came = replace(self.result.provenance, order=order)
        if local or self._spec.nvml:
            told = await gpu_readers.describe()
            resume.same_gpu(came.gpu, told)
            came = replace(came, gpu=told, gpu_reason=None if told else gpu_readers.NONE)
        else:  # an address here may be a tunnel
            came = replace(came, gpu_reason=f"the arms were not started here: {_GIVE}")
        self.result = replace(self.result, provenance=came)
        self._progress.begin(len(self._todo), [key.arm for key in self._todo], order)

    def groups(self) -> Iterator[Sequence[ArmSpec]]:
        """Arms that are up at the same time."""
        wanted = {key.arm for key in self._todo}
        arms = [arm for arm in self._spec.arms if arm.name in wanted]
        if any(isinstance(arm, Local) for arm in arms):
            yield from ([arm] for arm in arms)
        elif arms:
            yield arms

    async def measure_group(self, arms: Sequence[ArmSpec]) -> None:
        """All rows of some arms."""
        names = {arm.name for arm in arms}
        keys = [key for key in self._todo if key.arm in names]
        async with AsyncExitStack() as stack:
            servers: dict[str, Up] = {}
            for arm in arms:
                try:
                    servers[arm.name] = await stack.enter_async_context(
                        up(arm, self._spec, self._progress)
                    )
                except SpecctlError as error:
                    if not isinstance(arm, Local):
                        raise
                    self._fail(keys, f"it did not start: {error.message}")
                    return
            for arm in arms:
                self._met(arm, servers[arm.name])
            self._fit(servers)
            watch = self._watch(arms)
            for key in keys:
                await self._row(key, servers[key.arm], watch)

    def _watch(self, arms: Sequence[ArmSpec]) -> gpu.Watch:
        gpus = self._gpus(arms[0])  # of several that are up, all have as many
        if self._spec.dcgm is not None:
            return gpu.Watch(gpu_readers.Dcgm(self._spec.dcgm), "", gpus)
        if self._spec.nvml or all(isinstance(arm, Local) for arm in arms):
            return gpu.Watch(*gpu_readers.here(), gpus)
        return gpu.Watch(None, f"not started here, so its GPU is not known: {_GIVE}")

    def _gpus(self, arm: ArmSpec) -> int:
        told = self._spec.gpu_count
        return told if told is not None else arm.gpus if isinstance(arm, Local) else 1

    def _met(self, arm: ArmSpec, found: Up) -> None:
        """Note what a server said of itself."""
        spec, identity = self._spec, found.identity
        local = arm if isinstance(arm, Local) else None
        told = Arm(
            name=arm.name,
            baseline=arm.name == spec.baseline,
            endpoint=found.server.target.name,
            engine={"kind": identity.kind, "version": identity.version, "runner": found.runner},
            model=identity.model,
            method=local.method if local else identity.method,
            k=local.k if local else identity.k,
            draft=provenance.relative(str((local.speculative or {}).get("model") or "")) or None
            if local
            else identity.draft,
            command=found.command and tuple(map(provenance.relative, found.command)),
            gpu_count=self._gpus(arm),
            gpu_hour_usd=spec.gpu_hour_usd,
            start_s=found.start_s,
            max_model_len=identity.max_model_len,
            server=found.facts,
        )
        old = next((each for each in self.result.arms if each.name == arm.name), None)
        if old is not None:
            resume.same_arm(old, told)
        names = [each.name for each in spec.arms]
        arms = [*(each for each in self.result.arms if each.name != arm.name), told]
        arms.sort(key=lambda each: names.index(each.name))
        self.result = replace(
            self.result,
            arms=tuple(arms),
            simulated=self.result.simulated or identity.simulated,
        )

    def _fit(self, servers: dict[str, Up]) -> None:
        """Leave out, for every arm, prompts that the shortest context has no room for."""
        lengths = [arm.max_model_len for arm in self.result.arms if arm.max_model_len]
        shortest = min(lengths, default=None)
        longest = self._spec.sampling.longest
        room = None if shortest is None else shortest - longest - _TEMPLATE_TOKENS
        if room is not None and room < 1:
            raise UsageError(
                f"answers of {longest} tokens do not fit into a context of {shortest}",
                hint="lower --max-tokens, or serve with a larger --max-model-len",
            )
        fitted = [dataset.fitting(room) for dataset in self._spec.datasets]
        for dataset in fitted:
            if not dataset.prompts:
                raise UsageError(f"dataset {dataset.name}: no prompt fits into {shortest} tokens")
        self._datasets = {dataset.name: dataset for dataset in fitted}
        if not self.result.datasets:
            self.result = replace(self.result, datasets=tuple(map(sums.described, fitted)))
        for old in self.result.datasets:
            new = self._datasets[old.name]
            if new.sha256 != old.sha256:
                raise UsageError(
                    f"dataset {old.name}: not the prompts that were measured before",
                    hint="the file or a server's context changed; begin anew with another --out",
                )

    async def _row(self, key: Key, found: Up, watch: gpu.Watch) -> None:
        prompts = self._datasets[key.dataset]
        shape = self._spec.shape(key, len(prompts.prompts))
        self._progress.row(key)
        row, answers = await self._measure(
            found.server,
            found.identity,
            key,
            prompts,
            shape,
            self._spec.sampling,
            watch=watch,
            salt=secrets.token_hex(8),  # a row that is measured again meets no prompt of its own
            progress=self._progress.requests,
        )
        if row.state == "failed" and (why := found.died()):
            row = replace(row, reason=f"the server ended: {why}")
        if why := fault(row):  # a file with it would be lost, and every other row with it
            row = key.empty("failed", why)
        self._keep_texts(key, answers)
        self.result = self.result.with_row(row)
        self.keep()
        self._progress.measured(row)

    def _keep_texts(self, key: Key, answers: Sequence[Answer]) -> None:
        texts = self.result.texts
        if texts is None:
            return
        arm = keep(
            texts.get(key.arm, {}),
            ((f"{key.dataset}/{answer.prompt}", answer.text) for answer in answers),
            (key.batch, key.rate, key.repeat),
        )
        self.result = replace(self.result, texts={**texts, key.arm: arm})

    def _fail(self, keys: Sequence[Key], why: str) -> None:
        """An arm that never came up."""
        for key in keys:
            known = {arm.name for arm in self.result.arms}
            if key.arm not in known:
                baseline = key.arm == self._spec.baseline
                self.result = replace(self.result, arms=(*self.result.arms, Arm(key.arm, baseline)))
            row = key.empty("failed", why)
            self.result = self.result.with_row(row)
            self._progress.measured(row)
        self.keep()

    def keep(self) -> None:
        """Write the file as things stand, once there is a row: an empty one would be in the way."""
        result = self.result
        if not result.rows:
            return
        order = {key: i for i, key in enumerate(self._spec.rows())}
        rows = sorted(
            result.rows,
            key=lambda row: order.get(
                Key(row.arm, row.dataset, row.batch, row.rate, row.repeat), 0
            ),
        )
        complete = len(rows) == len(order) and all(row.state != "failed" for row in rows)
        self.result = replace(
            result,
            rows=tuple(rows),
            complete=complete,
            finished=now() if len(rows) == len(order) else None,
            datasets=tuple(sums.counted(each, rows) for each in result.datasets),
            provenance=replace(result.provenance, client=sums.client(rows)),
        )
        write(self._spec.out, self.result)
