"""Count what each rung of the ladder executes, exactly, with Nsight Compute on a GPU.

``python scripts/executed_counters.py --compile FOLDER`` writes the rungs' cubins; it needs no GPU.
``--output FILE --cubins FOLDER`` launches each once under ``ncu`` at 512 x 512 x 512 and writes the
counters, and beside them an archive of all that ncu wrote. Without ``--cubins`` the rungs are
compiled where they run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowgemm.errors import LowgemmError, MeasurementError, ToolNotFoundError, VerificationError
from lowgemm.gemm import RUNG_NAMES, GemmProblem, Reference, Rung, random_operands, rung
from lowgemm.studies.executed_counters import (
    INSTANCED_METRICS,
    LAUNCH_METRICS,
    ExecutedCounters,
    RungExecution,
    kernel_of,
    rung_execution,
    write_executed_counters,
)

ARCH = "sm_90"
PROBLEM = GemmProblem(512, 512, 512)
MANIFEST = "cubins.json"
_TIME_LIMIT_S = 120.0
_RIGHT = "the result is right"
_NCU_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")


# ---- the machine code


def compile_cubins(folder: Path) -> None:
    """Write each rung's cubin, with all its instances, and which compiler made them."""
    from lowgemm.studies.ladder import compile_ladder

    folder.mkdir(parents=True, exist_ok=True)
    compiled = compile_ladder([ARCH])
    for item in compiled:
        (folder / f"{item.rung.name}.cubin").write_bytes(item.build.cubin)
    manifest = {"arch": ARCH, "nvrtc": compiled[0].build.nvrtc_version}
    (folder / MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="utf-8")


def launch_once(name: str, folder: Path) -> None:
    """Launch a rung's kernel once on random data and check its result."""
    from lowgemm.device import Gpu

    chosen, p = rung(name, ARCH), PROBLEM
    operands = random_operands(p)
    gpu = Gpu()
    cubin = (folder / f"{name}.cubin").read_bytes()
    kernel = gpu.load(cubin).kernel(kernel_of(cubin, launched(chosen)))
    a, b = gpu.upload(operands.a.ravel()), gpu.upload(operands.b.ravel())
    c = gpu.empty(p.c_elements)
    launch = chosen.launch(gpu, p, a, b, c)
    kernel.launch(*launch.arguments, **launch.geometry)
    gpu.synchronize()
    result = Reference(p, operands).check(c.download())
    if not result.passed:
        raise VerificationError(f"{name} on {p}: {result}", "check it with lowgemm verify")
    print(_RIGHT)


def launched(chosen: Rung) -> str:
    """The instance that the ladder launches for the problem: its rows are aligned."""
    return chosen.instance(aligned=PROBLEM.allows_float4())


# ---- ncu


@dataclass(frozen=True)
class Profiler:
    """ncu, the folder of cubins that it profiles, and the folder where its output is kept."""

    ncu: str
    cubins: Path
    work: Path

    def version(self) -> str:
        """The version that ncu gives for itself."""
        found = re.search(r"Version\s+(\S+)", self._run([self.ncu, "--version"], "version"))
        return found[1] if found else "unknown"

    def profile(self, name: str, metrics: Sequence[str]) -> bool:
        """Launch a rung under ncu; whether there is a report afterwards."""
        report = self._report(name)
        report.unlink(missing_ok=True)
        child = [sys.executable, str(Path(__file__).resolve()), "--child", name]
        options = [
            *("--clock-control", "none", "--target-processes", "all", "--launch-count", "1"),
            *("--kernel-name", f"regex:{rung(name, ARCH).kernel}", "--section", "SourceCounters"),
            *("--metrics", ",".join(metrics), "--force-overwrite", "--export", str(report)),
        ]
        self._run([self.ncu, *options, *child, "--cubins", str(self.cubins)], f"{name}.log")
        return report.is_file()

    def collectable(self, name: str, metrics: Sequence[str]) -> tuple[str, ...]:
        """Those of the metrics that this ncu has; a rung's report is of them.

        ncu ends without a report if it does not know one of the metrics.
        """
        known = tuple(metrics)
        while known and not self.profile(name, known):
            log = (self.work / f"{name}.log").read_text(encoding="utf-8")
            refused = refused_metrics(log, known)
            if not refused:
                if not self.profile(name, LAUNCH_METRICS[:1]):
                    raise MeasurementError("ncu made no report", "see what it wrote")
                return self._halves(name, known)
            known = tuple(metric for metric in known if metric not in refused)
        return known

    def _halves(self, name: str, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """Look for refused metrics where no message names them."""
        if len(metrics) < 2:
            return ()
        middle = len(metrics) // 2
        known = tuple(
            metric
            for half in (metrics[:middle], metrics[middle:])
            for metric in (half if self.profile(name, half) else self._halves(name, half))
        )
        return known if known and self.profile(name, known) else ()

    def execution(self, name: str) -> RungExecution:
        """Read a rung's report, if its result was right."""
        if _RIGHT not in (self.work / f"{name}.log").read_text(encoding="utf-8"):
            raise MeasurementError(f"{name} was not found right under ncu", "see what it wrote")
        cubin = (self.cubins / f"{name}.cubin").read_bytes()
        raw = ("--page", "raw", "--csv", "--print-units", "base")
        details = (*raw, "--print-metric-instances", "details")
        source = ("--page", "source", "--csv", "--print-source", "sass")
        pages = {
            kind: self._page(name, kind, options)
            for kind, options in (("raw", raw), ("details", details), ("source", source))
        }
        return rung_execution(cubin, kernel_of(cubin, launched(rung(name, ARCH))), **pages)

    def _page(self, name: str, kind: str, options: Sequence[str]) -> str:
        command = [self.ncu, "--import", str(self._report(name)), *options]
        return self._run(command, f"{name}.{kind}.csv")

    def _report(self, name: str) -> Path:
        return self.work / f"{name}.ncu-rep"

    def _run(self, command: Sequence[str], log: str) -> str:
        """Run ncu, keep what it writes, and give its standard output."""
        # In the C locale ncu writes a point before decimals and a comma between thousands, if any.
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=_TIME_LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise MeasurementError(
                f"{shlex.join(command)} did not end within {_TIME_LIMIT_S:.0f} s",
                "see whether another process holds the profiler",
            ) from error
        kept = done.stdout if log.endswith(".csv") else done.stdout + done.stderr
        (self.work / log).write_text(kept, encoding="utf-8")
        return done.stdout


def refused_metrics(log: str, metrics: Sequence[str]) -> frozenset[str]:
    """The metrics that ncu's errors name, by their whole name, its stem, or a pattern of it."""
    complaints = [line for line in log.splitlines() if line.startswith("==ERROR==")]
    return frozenset(
        metric
        for metric in metrics
        for line in complaints
        if re.search(rf"(?<![\w.]){re.escape(metric.partition('.')[0])}(?!\w)", line)
    )


def find_ncu(given: str | None) -> str:
    """The profiler: the one named, one on PATH, or one where NVIDIA installs it."""
    if given:
        return given
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    places = [path for place in _NCU_PLACES for path in sorted(Path(place).glob("**/ncu"))]
    programs = [path for path in places if path.is_file() and os.access(path, os.X_OK)]
    if not programs:
        raise ToolNotFoundError("ncu is not on PATH", "name it with --ncu")
    return str(programs[-1])


def collect(profiler: Profiler, names: Sequence[str]) -> tuple[dict[str, RungExecution], list[str]]:
    """Profile rungs; their counters by name, and what went wrong with the others."""
    wanted = (*LAUNCH_METRICS, *INSTANCED_METRICS)
    metrics: tuple[str, ...] = ()
    rungs: dict[str, RungExecution] = {}
    failures = []
    for name in names:
        try:
            if metrics:
                profiler.profile(name, metrics)
            else:
                metrics = profiler.collectable(name, wanted)
            rungs[name] = profiler.execution(name)
            print(summary(name, rungs[name]), flush=True)
        except LowgemmError as error:
            log = profiler.work / f"{name}.log"
            tail = log.read_text(encoding="utf-8")[-1500:] if log.is_file() else ""
            failures.append(f"{name}: {error}\n{tail}")
    return rungs, failures


def summary(name: str, found: RungExecution) -> str:
    """A line that shows whether the counts of a rung agree among themselves."""
    totals = {
        "instructions": sum(found.instructions.get("inst_executed", ())),
        "opcodes": sum(found.opcodes.get(INSTANCED_METRICS[0], {}).values()),
        "launch": found.metrics.get("smsp__inst_executed.sum"),
        "FFMA": found.metrics.get("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
    }
    figures = ", ".join(f"{key} {value}" for key, value in totals.items())
    return f"{name:10} {figures}; missing: {', '.join(found.missing) or 'nothing'}"


# ---- the file


def record(
    rungs: Mapping[str, RungExecution], facts: Mapping[str, Any], manifest: Mapping[str, str]
) -> ExecutedCounters:
    """The counters with where they come from."""
    return ExecutedCounters(
        **facts,
        nvrtc=manifest["nvrtc"],
        arch=manifest["arch"],
        problem=str(PROBLEM),
        rungs=rungs,
    )


def measure(output: Path, cubins: Path | None, ncu: str | None) -> int:
    """Profile the whole ladder and write its counters."""
    from lowgemm.device import Gpu
    from lowgemm.report.provenance import run_facts

    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "executed_counters"
        work.mkdir()
        if cubins is None:
            cubins = work / "cubins"
            compile_cubins(cubins)
        manifest = json.loads((cubins / MANIFEST).read_text(encoding="utf-8"))
        profiler = Profiler(find_ncu(ncu), cubins.resolve(), work)
        version = profiler.version()
        try:
            rungs, failures = collect(profiler, RUNG_NAMES)
        finally:
            archive(work, output)
        command = f"python scripts/executed_counters.py --cubins FOLDER --output {output.name}"
        facts = {**run_facts(Gpu(), command), "ncu": version}
        write_executed_counters(record(rungs, facts, manifest), output)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def archive(work: Path, output: Path) -> None:
    """Keep all that ncu wrote, beside the counters."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(output.with_name(f"{output.stem}_raw.tar.gz"), "w:gz") as tar:
        tar.add(work, arcname=work.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, launch once, or measure, as the options say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    job = parser.add_mutually_exclusive_group(required=True)
    job.add_argument("--compile", type=Path, metavar="FOLDER", help="write the rungs' cubins")
    job.add_argument("--child", choices=RUNG_NAMES, help="launch one rung once")
    job.add_argument("--output", type=Path, metavar="FILE", help="measure and write the counters")
    parser.add_argument("--cubins", type=Path, metavar="FOLDER", help="what --compile wrote")
    parser.add_argument("--ncu", help="the profiler; found by itself if left out")
    given = parser.parse_args(arguments)
    if given.compile:
        compile_cubins(given.compile)
        return 0
    if given.child:
        if given.cubins is None:
            parser.error("--child needs --cubins")
        launch_once(given.child, given.cubins)
        return 0
    return measure(given.output, given.cubins, given.ncu)


if __name__ == "__main__":
    sys.exit(main())
