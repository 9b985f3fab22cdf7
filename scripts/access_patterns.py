"""Count what accesses to memory of many patterns cost, with Nsight Compute on a GPU.

``python scripts/access_patterns.py --output FILE`` launches one warp for each kind of access under
``ncu``. The kernel of a kind holds one instruction for each pattern, so that one launch counts them
all. The patterns and their counters go into FILE, and ncu's own page beside it. What the rules of
`lowgemm.emulator.wavefronts` do not explain is marked in FILE; ``--mark FILE`` does that anew.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowgemm.compiler import Build, compile_source
from lowgemm.emulator.wavefronts import (
    atomic_wavefronts,
    copied_lanes,
    copy_sectors,
    copy_wavefronts,
    global_sectors,
    ideal_global_sectors,
    ideal_shared_wavefronts,
    shared_wavefronts,
)
from lowgemm.errors import MeasurementError
from lowgemm.studies.executed_counters import INSTRUCTION_METRICS, read_source_page
from lowgemm.studies.files import write_json

ARCH = "sm_90"
SCHEMA = 1
SEED = 20261130
LANES = 32
#: The places of patterns are elements from 0 to this; the widest element has 16 bytes.
ELEMENTS = 2048
#: The bit of a place in the tables that marks a lane that is not active.
INACTIVE_BIT = 1 << 30
METRICS = tuple(name for name in INSTRUCTION_METRICS if name.startswith("memory"))
SECTORS = "memory_l2_theoretical_sectors_global"
WAVEFRONTS = "memory_l1_wavefronts_shared"
_TIME_LIMIT_S = 300.0

Lanes = NDArray[np.int64]
Flags = NDArray[np.bool_]
LANE: Lanes = np.arange(LANES, dtype=np.int64)


# ---- patterns of one address


@dataclass(frozen=True)
class Pattern:
    """What each lane names: elements at its places, for a copy also those at its sources.

    Lanes that are not active have places too: the registers of their addresses hold them.
    """

    places: Lanes
    active: Flags
    sources: Lanes | None = None

    def masked(self, active: Flags) -> Pattern:
        """The same with only those lanes active."""
        return replace(self, active=active)

    def filled(self, places: Lanes | int) -> Pattern:
        """The same with other places of the lanes that are not active."""
        return replace(self, places=np.where(self.active, self.places, places))


def every_lane(places: Lanes, sources: Lanes | None = None) -> Pattern:
    """A pattern whose lanes are all active."""
    return Pattern(places, np.ones(LANES, np.bool_), sources)


def masks(rng: np.random.Generator) -> Iterator[Flags]:
    """Lanes that are active: halves, quarters, steps, single ones, and random ones."""
    for count in (1, 5, 8, 16, 24, 31):
        yield count > LANE
    for first, last in ((16, 32), (8, 16), (4, 12), (31, 32)):
        yield (first <= LANE) & (last > LANE)
    for step, chosen in ((2, (0,)), (2, (1,)), (4, (0,)), (4, (0, 1)), (4, (0, 3)), (8, (0, 7))):
        yield np.isin(LANE % step, chosen)
    yield LANE != 7
    for density in (0.9, 0.5, 0.15):
        yield rng.random(LANES) < density


def regular_places() -> Iterator[Lanes]:
    """Strides, broadcasts, permutations, and lanes that share an element by their bits."""
    for step in (0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 48):
        yield LANE * step
    for size in (2, 4, 8, 16):
        yield LANE // size
        yield LANE % size
    for bits in (5, 6, 10, 12, 20, 21, 24, 27, 29, 30):
        yield LANE & bits
    for bits in (1, 2, 5, 16, 31):
        yield LANE ^ bits
    for shift in (1, 3, 5, 9):
        yield LANE + shift
    for step in (8, 16, 32):
        yield LANE % 4 * step + LANE // 4
        yield LANE % 8 * (step + 1) + LANE // 8


def access_patterns() -> list[Pattern]:
    """What one warp loads or stores: regular places, some with masks, and random ones."""
    rng = np.random.default_rng(SEED)
    found = [every_lane(places) for places in regular_places()]
    found.append(found[0].masked(LANE < 0))
    random = rng.permutation(64)[:LANES]
    bases = (LANE, LANE * 0, LANE // 2, LANE & ~2, LANE // 2 * 8, random)
    for places in bases:
        found += [every_lane(places).masked(active) for active in masks(rng)]
    for places in (LANE, LANE * 0 + 3, LANE // 2 + 8, LANE & ~2):
        for fill in (0, rng.integers(0, 64, LANES)):
            found += [every_lane(places).masked(active).filled(fill) for active in masks(rng)]
    found += [_random_access(rng) for _ in range(160)]
    found += [_random_pairs(rng) for _ in range(100)]
    return found


def _random_access(rng: np.random.Generator) -> Pattern:
    span = int(rng.choice([4, 8, 16, 32, 64, 128, 512, ELEMENTS]))
    places = rng.integers(0, span, LANES)
    shared_bits = int(rng.choice([0, 0, 1, 2, 3, 4, 8, 16]))
    places = places[LANE & ~shared_bits]
    if rng.random() < 0.3:
        places[rng.integers(LANES)] = rng.integers(span)
    return _random_mask(rng, every_lane(places), span)


def _random_mask(rng: np.random.Generator, pattern: Pattern, span: int) -> Pattern:
    density = rng.choice([1.0, 1.0, 0.95, 0.7, 0.4, 0.2])
    masked = pattern.masked(rng.random(LANES) < density)
    return masked.filled(rng.integers(0, span, LANES)) if rng.random() < 0.5 else masked


def _random_pairs(rng: np.random.Generator) -> Pattern:
    """Lanes that share elements in pairs, each half warp or four lanes in their own way."""
    span = int(rng.choice([8, 16, 32, 64]))
    places = rng.permutation(span)[rng.permutation(LANES) % span]
    size = int(rng.choice([4, 16]))
    bits = rng.choice([1, 2, 3, 4], LANES // size).repeat(size)
    return _random_mask(rng, every_lane(places[LANE & ~bits]), span)


# ---- patterns of copies


def regular_copies() -> Iterator[tuple[Lanes, Lanes]]:
    """Sources and places: shifted, strided, transposed, in rows, permuted, and shared."""
    for shift in (0, 1, 2, 3, 4, 7, 8, 16, 31, 32):
        yield LANE, LANE + shift
        yield LANE + shift, LANE
    for step in (2, 3, 4, 8, 9, 16, 17, 32, 33):
        yield LANE, LANE * step
        yield LANE * step, LANE
        yield LANE * step, LANE * step
    for columns in (2, 4, 8, 16):
        for pitch in (4, 8, 9, 12, 16, 32, 33):
            yield LANE, LANE % columns * pitch + LANE // columns
            yield _rows(columns, 16), _rows(columns, pitch)
            yield _rows(columns, 63), _rows(columns, pitch)
    for bits in (1, 2, 4, 8, 16, 3, 31):
        yield LANE, LANE ^ bits
        yield LANE ^ bits, LANE
    for size in (2, 4, 32):
        yield LANE // size, LANE
        yield LANE & ~(size // 2), LANE
        yield LANE, LANE // size
        yield LANE // size * 8, LANE


def _rows(columns: int, pitch: int) -> Lanes:
    return LANE % columns + LANE // columns * pitch


def copy_patterns() -> list[Pattern]:
    """What one warp copies: regular sources and places, some with masks, and random ones."""
    rng = np.random.default_rng(SEED + 1)
    found = [every_lane(places, sources) for sources, places in regular_copies()]
    found.append(found[0].masked(LANE < 0))
    bases = ((LANE, LANE), (_rows(2, 16), _rows(2, 3)), (LANE, LANE * 33 % 1024), (LANE, LANE ^ 5))
    for sources, places in bases:
        found += [every_lane(places, sources).masked(active) for active in masks(rng)]
    found += [_random_copy(rng) for _ in range(100)]
    found += [_random_rows(rng) for _ in range(100)]
    return found


def _random_copy(rng: np.random.Generator) -> Pattern:
    spans = rng.choice([8, 16, 32, 64, 256, ELEMENTS], 2)
    sources = rng.integers(0, int(spans[0]), LANES)
    span = max(int(spans[1]), LANES)
    places = rng.permutation(span)[:LANES] if rng.random() < 0.8 else rng.integers(0, span, LANES)
    density = rng.choice([1.0, 1.0, 0.7, 0.4])
    return every_lane(places, sources).masked(rng.random(LANES) < density)


def _random_rows(rng: np.random.Generator) -> Pattern:
    columns = int(rng.choice([2, 4, 8, 16]))
    starts = rng.integers(0, int(rng.choice([32, 64, 256])), (2, LANES // columns)) * int(
        rng.choice([1, 2, 4])
    )
    sources, places = starts[:, LANE // columns] + LANE % columns
    if rng.random() < 0.3:
        places = places[rng.permutation(LANES)]
    density = rng.choice([1.0, 1.0, 0.8])
    return every_lane(places, sources).masked(rng.random(LANES) < density)


def all_patterns() -> dict[str, list[Pattern]]:
    """The patterns by the name that kinds give them."""
    return {"access": access_patterns(), "copy": copy_patterns()}


# ---- kinds of access


@dataclass(frozen=True)
class Kind:
    """A kind of access: its PTX, what its machine code is called, and what it runs over.

    ``name`` is that of its kernel, ``space`` is "shared", "generic" (of shared memory), "global" or
    "copy", ``mnemonic`` a pattern that its machine code matches and nothing else in the kernel.
    """

    name: str
    space: str
    width: int
    asm: str
    mnemonic: str

    @property
    def patterns(self) -> str:
        """The patterns that it runs over."""
        return "copy" if self.space == "copy" else "access"

    @property
    def source(self) -> str:
        """The CUDA C++ of its kernel."""
        return _KERNEL % {
            "name": self.name,
            "patterns": len(all_patterns()[self.patterns]),
            "bytes": ELEMENTS * 16,
            "width": self.width,
            "asm": self.asm,
            "addresses": _ADDRESS_CODE[self.space] % {"width": self.width},
        }


# Tables are read as constant, so that no access of a kind has their mnemonic; the compiler does not
# see that the generic address is one of shared memory. What is loaded must be used: ptxas drops
# loads whose values nothing needs, and makes reductions of such atomics. Addresses pass through
# moves so that lanes that are not active have them too, and a warp barrier keeps loads in order.
_KERNEL = """
extern "C" __global__ void __launch_bounds__(32)
%(name)s(const int* places, const int* sources, char* global, int generic_is_shared)
{
    __shared__ __align__(1024) char memory[%(bytes)d];
    unsigned shared_base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    char* generic_base = generic_is_shared ? memory : global;
    int used = 0;
    #pragma unroll
    for (int pattern = 0; pattern < %(patterns)d; ++pattern) {
        int entry = __ldg(places + pattern * 32 + threadIdx.x);
        int place = entry & 0xffff;
        %(addresses)s
        if (entry == place) {
            %(asm)s
        }
        __syncwarp();
    }
    if (used == 0x5eed) global[0] = 1;
}
"""

_MOVE_32 = 'asm volatile("mov.b32 %%%%0, %%%%1;" : "=r"(%s) : "r"(%s));'
_MOVE_64 = 'asm volatile("mov.b64 %%%%0, %%%%1;" : "=l"(%s) : "l"(%s));'
_SHARED = "unsigned shared; " + _MOVE_32 % ("shared", "shared_base + place * %(width)d")
_ADDRESS_CODE = {
    "shared": _SHARED,
    "global": "char* address; " + _MOVE_64 % ("address", "global + place * %(width)d"),
    "generic": "char* generic; " + _MOVE_64 % ("generic", "generic_base + place * %(width)d"),
    "copy": _SHARED
    + " int source = __ldg(sources + pattern * 32 + threadIdx.x); char* from; "
    + _MOVE_64 % ("from", "global + source * %(width)d"),
}
_REGISTERS = {1: "h", 2: "h", 4: "r", 8: "r", 16: "r"}
_TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "v2.u32", 16: "v4.u32"}
_SUFFIXES = {1: r"\.U8", 2: r"\.U16", 4: "", 8: r"\.64", 16: r"\.128"}
_ADDRESSES = {"shared": '"r"(shared)', "global": '"l"(address)', "generic": '"l"(generic)'}
_OPCODES = {
    "shared": ("LDS", "STS"),
    "global": (r"LDG\.E", r"STG\.E"),
    "generic": (r"LD\.E", r"ST\.E"),
}


def _operands(count: int, first: int = 0) -> str:
    names = ", ".join(f"%{first + index}" for index in range(count))
    return names if count == 1 else "{" + names + "}"


def _load(space: str, width: int) -> Kind:
    words = max(1, width // 4)
    state = "" if space == "generic" else f".{space}"
    c_type = "short" if width < 4 else "int"
    values = ", ".join(f'"={_REGISTERS[width]}"(v{index})' for index in range(words))
    asm = (
        f"{c_type} {', '.join(f'v{index}' for index in range(words))}; asm volatile("
        f'"ld{state}.{_TYPES[width]} {_operands(words)}, [%{words}];" '
        f': {values} : {_ADDRESSES[space]} : "memory"); used ^= '
        f"{' ^ '.join(f'v{index}' for index in range(words))};"
    )
    return Kind(
        f"load_{space}_{width}", space, width, asm, _OPCODES[space][0] + _SUFFIXES[width] + "$"
    )


def _store(space: str, width: int) -> Kind:
    words = max(1, width // 4)
    state = "" if space == "generic" else f".{space}"
    value = "(short)place" if width < 4 else "place"
    values = ", ".join(f'"{_REGISTERS[width]}"({value})' for _ in range(words))
    asm = (
        f'asm volatile("st{state}.{_TYPES[width]} [%0], {_operands(words, 1)};" '
        f':: {_ADDRESSES[space]}, {values} : "memory");'
    )
    suffix = _SUFFIXES[width] + "$"
    return Kind(f"store_{space}_{width}", space, width, asm, _OPCODES[space][1] + suffix)


def _atomic(space: str, operation: str, width: int, mnemonic: str) -> Kind:
    constraint, c_type = ("r", "int") if width == 4 else ("l", "long long")
    compares = operation.startswith("cas")
    values = f', "{constraint}"(({c_type})place)' * (2 if compares else 1)
    asm = (
        f'{c_type} v; asm volatile("atom.{space}.{operation} %0, [%1], %2{", %3" * compares};" '
        f': "={constraint}"(v) : {_ADDRESSES[space]}{values} : "memory"); used ^= v;'
    )
    name = f"atomic_{operation.partition('.')[0]}_{space}_{width}"
    return Kind(name, space, width, asm, mnemonic)


def _reduction(space: str, mnemonic: str) -> Kind:
    asm = (
        f'asm volatile("red.{space}.add.u32 [%0], %1;" '
        f':: {_ADDRESSES[space]}, "r"(place) : "memory");'
    )
    return Kind(f"reduce_add_{space}_4", space, 4, asm, mnemonic)


def _copy(cache: str, width: int) -> Kind:
    asm = (
        f'asm volatile("cp.async.{cache}.shared.global [%0], [%1], {width};" '
        ':: "r"(shared), "l"(from) : "memory");'
    )
    return Kind(f"copy_{cache}_{width}", "copy", width, asm, "LDGSTS")


def kinds() -> list[Kind]:
    """All kinds of access."""
    widths = (1, 2, 4, 8, 16)
    spaces = ("shared", "global", "generic")
    return [
        *(make(space, width) for space in spaces for make in (_load, _store) for width in widths),
        _atomic("shared", "add.u32", 4, r"ATOMS\.ADD"),
        _atomic("shared", "exch.b32", 4, r"ATOMS\.EXCH"),
        _atomic("shared", "exch.b64", 8, r"ATOMS\.EXCH"),
        _atomic("shared", "cas.b32", 4, r"ATOMS\.CAS"),
        _atomic("shared", "cas.b64", 8, r"ATOMS\.CAS"),
        _reduction("shared", r"ATOMS\.ADD"),
        _atomic("global", "add.u32", 4, r"ATOMG\.E\.ADD"),
        _atomic("global", "add.u64", 8, r"ATOMG\.E\.ADD"),
        _atomic("global", "cas.b32", 4, r"ATOMG\.E\.CAS"),
        _atomic("global", "cas.b64", 8, r"ATOMG\.E\.CAS"),
        _reduction("global", r"REDG?\.E\.ADD"),
        *(_copy("ca", width) for width in (4, 8, 16)),
        _copy("cg", 16),
    ]


def build(kind: Kind) -> Build:
    """The machine code of a kind."""
    return compile_source(kind.source, name=f"{kind.name}.cu", arch=ARCH)


# ---- measuring


def launch_all() -> None:
    """Launch every kind once."""
    from lowgemm.device import Gpu

    gpu = Gpu()
    memory = gpu.upload(np.zeros(ELEMENTS * 16, np.int8))
    tables = {}
    for name, patterns in all_patterns().items():
        places = np.concatenate([np.where(p.active, 0, INACTIVE_BIT) | p.places for p in patterns])
        sources = np.concatenate([p.places if p.sources is None else p.sources for p in patterns])
        tables[name] = [gpu.upload(table.astype(np.int32)) for table in (places, sources)]
    for kind in kinds():
        table = tables[kind.patterns]
        kernel = gpu.load(build(kind)).kernel(kind.name)
        kernel.launch(*table, memory, int(kind.space == "generic"), grid=1, block=LANES)
        gpu.synchronize()


def profile(ncu: str, report: Path) -> str:
    """Launch every kind under ncu; the page of their instructions."""
    with ProcessPoolExecutor() as pool:  # fills the disk cache of the compiler
        list(pool.map(build, kinds()))
    child = [sys.executable, str(Path(__file__).resolve()), "--child"]
    options = [
        *("--clock-control", "none", "--target-processes", "all", "--section", "SourceCounters"),
        *("--metrics", ",".join(METRICS), "--force-overwrite", "--export", str(report)),
    ]
    _run([ncu, *options, *child])
    return _run([ncu, "--import", str(report), "--page", "source", "--csv", "--print-source=sass"])


def _run(command: Sequence[str]) -> str:
    # In the C locale ncu writes a point before decimals and a comma between thousands, if any.
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=_TIME_LIMIT_S
    )
    if done.returncode:
        raise MeasurementError(f"{command[0]} failed", (done.stdout + done.stderr)[-2000:])
    return done.stdout


def split_page(page: str) -> dict[str, str]:
    """The source page of each kernel, by the kernel's name."""
    parts = re.split(r'^(?="Kernel Name",)', page, flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        heading = re.match(r'"Kernel Name","?(?:\w+ )*(\w+)', part)
        if heading:
            found[heading[1]] = part
    return found


def counters(kind: Kind, page: str) -> dict[str, Any]:
    """The counters of a kind: a list for each metric, a count for each pattern.

    Raises
    ------
    MeasurementError
        The kernel does not hold one instruction for each pattern.
    """
    mnemonics, counts, _ = read_source_page(page)
    patterns = all_patterns()[kind.patterns]
    chosen = [i for i, mnemonic in enumerate(mnemonics) if re.match(kind.mnemonic, mnemonic)]
    lanes = [counts["thread_inst_executed_true"][i] for i in chosen]
    if lanes != [int(pattern.active.sum()) for pattern in patterns]:
        raise MeasurementError(
            f"{kind.name} has {len(chosen)} instructions for {len(patterns)} patterns, "
            "or they execute other lanes",
            f"its instructions are {', '.join(sorted(set(mnemonics)))}",
        )
    columns = {name: [counts[name][i] for i in chosen] for name in METRICS if name in counts}
    return {
        "instruction": mnemonics[chosen[0]],
        "space": kind.space,
        "width_bytes": kind.width,
        "patterns": kind.patterns,
        "counters": {name: column for name, column in columns.items() if any(column)},
    }


def as_data(pattern: Pattern) -> dict[str, list[int]]:
    """A pattern as lists."""
    data = {"places": pattern.places.tolist(), "active": np.flatnonzero(pattern.active).tolist()}
    if pattern.sources is not None:
        data["sources"] = pattern.sources.tolist()
    return data


# ---- what the emulator's rules do not explain


def by_the_rules(
    access: Mapping[str, Any], patterns: Sequence[Pattern], *, every_lane_counts: bool = False
) -> dict[str, Lanes]:
    """What `lowgemm.emulator.wavefronts` says of the patterns, by the names of the metrics.

    Parameters
    ----------
    access
        A kind's record in the file.
    patterns
        Its patterns.
    every_lane_counts
        Take all lanes as active.
    """
    width, space, code = access["width_bytes"], access["space"], access["instruction"]
    places = np.array([pattern.places for pattern in patterns]) * width
    active = np.array([pattern.active for pattern in patterns]) | every_lane_counts
    lanes = np.count_nonzero(active, axis=1)
    found: dict[str, Lanes] = {}
    moving, times = lanes, 1
    if space == "copy":
        sources = np.array([pattern.sources for pattern in patterns]) * width
        addresses, bypass = sources.astype(np.uint64), ".BYPASS" in code
        found[SECTORS] = copy_sectors(addresses, places, active, width, bypass=bypass)
        found[WAVEFRONTS] = copy_wavefronts(addresses, places, active, width, bypass=bypass)
        moving = copied_lanes(places, active, bypass=bypass)
    elif space == "global":
        found[SECTORS] = global_sectors(places.astype(np.uint64), active, width)
    elif code.startswith("ATOMS"):
        compare = ".CAS" in code
        times = 2 if compare else 1
        found[WAVEFRONTS] = atomic_wavefronts(places, active, width, compare=compare)
    else:
        store = code.startswith("ST")
        found[WAVEFRONTS] = shared_wavefronts(places, active, width, store=store)
    for metric, ideal in ((SECTORS, ideal_global_sectors), (WAVEFRONTS, ideal_shared_wavefronts)):
        if metric in found:
            found[f"{metric}_ideal"] = np.minimum(found[metric], times * ideal(moving, width))
    return found


def mark(data: dict[str, Any]) -> None:
    """Name the patterns of each kind whose counters the rules do not give.

    Under ``all_lanes`` stand those whose counters are right for a warp with all lanes active, under
    ``unexplained`` the others for each metric.
    """
    for access in data["accesses"].values():
        patterns = [from_data(item) for item in data["patterns"][access["patterns"]]]
        masked = by_the_rules(access, patterns)
        whole = by_the_rules(access, patterns, every_lane_counts=True)
        counts = {name: np.array(access["counters"][name]) for name in masked}
        sectors = [name for name in counts if name.startswith(SECTORS)]
        wrong = np.array([masked[name] != counts[name] for name in sectors]).any(axis=0)
        right = np.array([whole[name] == counts[name] for name in sectors]).all(axis=0)
        all_lanes = wrong & right if sectors else np.zeros(len(patterns), np.bool_)
        access["all_lanes"] = np.flatnonzero(all_lanes).tolist()
        access["unexplained"] = {
            name: np.flatnonzero(np.where(all_lanes, whole[name], masked[name]) != column).tolist()
            for name, column in counts.items()
        }


def from_data(item: Mapping[str, Any]) -> Pattern:
    """A pattern from its lists."""
    places = np.array(item["places"], np.int64)
    sources = np.array(item["sources"], np.int64) if "sources" in item else None
    return Pattern(places, np.isin(LANE, item["active"]), sources)


def write(accesses: Mapping[str, Any], facts: Mapping[str, Any], output: Path) -> None:
    """Write patterns and counters, a list a line."""
    data = {
        "schema": SCHEMA,
        "provenance": facts,
        "patterns": {
            name: [as_data(pattern) for pattern in patterns]
            for name, patterns in all_patterns().items()
        },
        "accesses": accesses,
    }
    save(data, output)


def save(data: dict[str, Any], output: Path) -> None:
    """Write the file, with the patterns marked that the rules do not explain."""
    mark(data)
    write_json(data, output, list_a_line=True)


def measure(output: Path, ncu: str) -> int:
    """Profile every kind and write the counters; how many kinds failed."""
    from lowgemm.device import Gpu
    from lowgemm.report.provenance import run_facts

    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = profile(ncu, Path(scratch) / "report.ncu-rep")
    output.with_suffix(".csv.gz").write_bytes(gzip.compress(page.encode()))
    version = re.search(r"Version\s+(\S+)", _run([ncu, "--version"]))
    facts = {
        **run_facts(Gpu(), f"python scripts/access_patterns.py --output {output.name}"),
        "ncu": version[1] if version else "unknown",
        "nvrtc": build(kinds()[0]).nvrtc_version,
        "seed": SEED,
    }
    accesses, failures, pages = {}, 0, split_page(page)
    for kind in kinds():
        try:
            if kind.name not in pages:
                raise MeasurementError(f"ncu has no page of {kind.name}", "see what it wrote")
            accesses[kind.name] = counters(kind, pages[kind.name])
        except MeasurementError as error:
            failures += 1
            print(f"{kind.name}: {error}", file=sys.stderr)
    write(accesses, facts, output)
    print(f"{len(accesses)} kinds of access, {failures} failed")
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or launch what is measured, as the options say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    job = parser.add_mutually_exclusive_group(required=True)
    job.add_argument("--output", type=Path, metavar="FILE", help="measure and write the counters")
    job.add_argument("--mark", type=Path, metavar="FILE", help="mark what no rule explains anew")
    job.add_argument("--child", action="store_true", help="launch every kind once")
    parser.add_argument("--ncu", default="ncu", help="the profiler")
    given = parser.parse_args(arguments)
    if given.child:
        launch_all()
        return 0
    if given.mark:
        save(json.loads(given.mark.read_text(encoding="utf-8")), given.mark)
        return 0
    return 1 if measure(given.output, given.ncu) else 0


if __name__ == "__main__":
    sys.exit(main())
