"""Kernels as textbooks write them, each with seeded inputs and numpy's answer.

Where the order of the operations is fixed and each is exact or correctly rounded, the answer must
be equal to the bit; elsewhere it must lie within the bound that the case names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lowgemm.compiler import compile_file

if TYPE_CHECKING:
    from lowgemm.compiler import Build
    from lowgemm.runtime import Device, Module

__all__ = ["CASES", "TEXTBOOK", "Case"]

TEXTBOOK = Path(__file__).parent / "textbook"

Host = np.ndarray[Any, Any]
Run = Callable[["Device", "Module"], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A launch, or several, whose result is known.

    ``run`` makes the inputs, launches and raises AssertionError where the result is wrong.
    ``options`` are NVRTC's. ``min_capability`` is the least compute capability that can run it.
    """

    name: str
    source: Path
    run: Run
    options: tuple[str, ...] = ()
    min_capability: tuple[int, int] = (8, 0)

    def build(self, arch: object) -> Build:
        """The case's source, compiled for an architecture."""
        return compile_file(self.source, arch=str(arch), options=self.options)


_CASES: list[Case] = []
#: Without contraction to FMAs each operation rounds by itself, as numpy's do.
_NO_FMA = ("-fmad=false",)


def _case(
    stem: str, options: tuple[str, ...] = (), min_capability: tuple[int, int] = (8, 0)
) -> Callable[[Run], Run]:
    """Register a function as the case of its own name, of ``textbook/<stem>.cu``."""

    def register(run: Run) -> Run:
        source = TEXTBOOK / f"{stem}.cu"
        _CASES.append(Case(run.__name__, source, run, options, min_capability))
        return run

    return register


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _normal(seed: int, *shape: int) -> Host:
    return _random(seed).standard_normal(shape, dtype=np.float32)


def _blocks(n: int, threads: int) -> int:
    return -(-n // threads)


def _padded(values: Host, multiple: int, fill: float = 0) -> Host:
    """Rows of ``multiple`` elements, the last one filled up."""
    rows = _blocks(values.size, multiple)
    out = np.full(rows * multiple, fill, values.dtype)
    out[: values.size] = values
    return out.reshape(rows, multiple)


def _tree(values: Host) -> Host:
    """Add halves to each other along the last axis: the order of a reduction's tree."""
    while (half := values.shape[-1] // 2) > 0:
        values = values[..., :half] + values[..., half : 2 * half]
    return values[..., 0]


def _equal(actual: Any, expected: Any) -> None:
    np.testing.assert_array_equal(actual, expected, strict=False)


def _close(actual: Any, expected: Any, rtol: float, atol: float = 0.0) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# ---- reductions


@_case("reductions")
def reduce_interleaved(device: Device, module: Module) -> None:
    n, threads = 1234, 100
    x = _random(1).integers(-1000, 1000, n, dtype=np.int32)
    blocks = _blocks(n, threads)
    out = device.empty(blocks, np.int32)
    module.kernel("reduce_interleaved").launch(
        device.upload(x), out, n, grid=blocks, block=threads, shared_bytes=4 * threads
    )
    _equal(out.download(), _padded(x, threads).sum(axis=1))


@_case("reductions")
def reduce_sequential(device: Device, module: Module) -> None:
    n = 1001
    x = _normal(2, n)
    out = device.empty(8)
    module.kernel("reduce_sequential").launch(device.upload(x), out, n, grid=8, block=128)
    _equal(out.download(), _tree(_padded(x, 128)))


@_case("reductions")
def reduce_shuffle(device: Device, module: Module) -> None:
    n, blocks, threads = 2999, 3, 192
    x = _normal(3, n)
    out = device.empty(blocks)
    module.kernel("reduce_shuffle").launch(device.upload(x), out, n, grid=blocks, block=threads)
    sums = np.zeros(blocks * threads, np.float32)
    for row in _padded(x, sums.size):
        sums += row
    warps = np.zeros((blocks, 32), np.float32)
    warps[:, : threads // 32] = _tree(sums.reshape(blocks, threads // 32, 32))
    _equal(out.download(), _tree(warps))


@_case("reductions")
def reduce_atomic(device: Device, module: Module) -> None:
    n = 1999
    x = _random(4).integers(-(2**30), 2**30, n, dtype=np.int32)
    total, low, high = (device.upload(np.array([v], np.int32)) for v in (0, 2**31 - 1, -(2**31)))
    squares = device.zeros(1, np.uint64)
    module.kernel("reduce_atomic").launch(
        device.upload(x), total, low, high, squares, n, grid=_blocks(n, 256), block=256
    )
    _equal(total.download(), x.sum(dtype=np.int32))
    assert (low.download()[0], high.download()[0]) == (x.min(), x.max())
    _equal(squares.download(), np.square(x.astype(np.int64)).astype(np.uint64).sum())


@_case("reductions")
def block_votes(device: Device, module: Module) -> None:
    n, threads = 700, 96
    x = _random(5).integers(-100, 100, n, dtype=np.int32)
    blocks = _blocks(n, threads)
    outs = [device.empty(blocks, np.int32) for _ in range(3)]
    module.kernel("block_votes").launch(device.upload(x), *outs, n, grid=blocks, block=threads)
    rows = _padded(x, threads, -1)
    expected = (rows > 0).sum(1), (rows == 0).any(1), (rows < 95).all(1)
    for out, want in zip(outs, expected, strict=True):
        _equal(out.download(), want)


# ---- scans


@_case("scans")
def scan_hillis_steele(device: Device, module: Module) -> None:
    n, threads = 605, 120
    x = _random(6).integers(-1000, 1000, n, dtype=np.int32)
    out = device.empty(n, np.int32)
    module.kernel("scan_hillis_steele").launch(
        device.upload(x), out, n, grid=6, block=threads, shared_bytes=8 * threads
    )
    _equal(out.download(), _padded(x, threads).cumsum(axis=1).ravel()[:n])


@_case("scans")
def scan_blelloch(device: Device, module: Module) -> None:
    n = 901
    x = _random(7).integers(0, 2**32, n, dtype=np.uint32)
    out, totals = device.empty(n, np.uint32), device.empty(4, np.uint32)
    module.kernel("scan_blelloch").launch(device.upload(x), out, totals, n, grid=4, block=128)
    rows = _padded(x, 256)
    inclusive = rows.cumsum(axis=1, dtype=np.uint32)
    _equal(out.download(), (inclusive - rows).ravel()[:n])
    _equal(totals.download(), inclusive[:, -1])


@_case("scans")
def scan_shuffle(device: Device, module: Module) -> None:
    n, threads = 1111, 256
    x = _random(8).integers(-1000, 1000, n, dtype=np.int32)
    out = device.empty(n, np.int32)
    module.kernel("scan_shuffle").launch(device.upload(x), out, n, grid=5, block=threads)
    _equal(out.download(), _padded(x, threads).cumsum(axis=1).ravel()[:n])


@_case("scans")
def scan_lookback(device: Device, module: Module) -> None:
    n, threads = 1417, 128
    x = _random(9).integers(0, 2**31, n, dtype=np.uint32)
    blocks = _blocks(n, threads)
    out, aggregate, prefix = (device.empty(size, np.uint32) for size in (n, blocks, blocks))
    ticket, state = device.zeros(1, np.uint32), device.zeros(blocks, np.int32)
    module.kernel("scan_lookback").launch(
        device.upload(x), out, n, ticket, state, aggregate, prefix, grid=blocks, block=threads
    )
    expected = x.cumsum(dtype=np.uint32)
    _equal(out.download(), expected)
    assert prefix.download()[-1] == expected[-1]


# ---- transposes and stencils


def _transpose(name: str, device: Device, module: Module, block: tuple[int, int]) -> None:
    width, height = 75, 45
    x = _normal(10, height, width)
    out = device.empty((width, height))
    grid = (_blocks(width, 32), _blocks(height, block[0]))
    module.kernel(name).launch(device.upload(x), out, width, height, grid=grid, block=block)
    _equal(out.download(), x.T)


@_case("transposes")
def transpose_naive(device: Device, module: Module) -> None:
    _transpose("transpose_naive", device, module, (32, 32))


@_case("transposes")
def transpose_tiled(device: Device, module: Module) -> None:
    _transpose("transpose_tiled", device, module, (32, 8))


@_case("transposes")
def transpose_padded(device: Device, module: Module) -> None:
    _transpose("transpose_padded", device, module, (32, 8))


@_case("stencils")
def stencil_1d(device: Device, module: Module) -> None:
    n = 1000
    x = _random(11).integers(-99, 99, n, dtype=np.int32)
    out = device.empty(n, np.int32)
    module.kernel("stencil_1d").launch(device.upload(x), out, n, grid=_blocks(n, 96), block=96)
    _equal(out.download(), np.convolve(x, np.ones(7, np.int32), "same"))


@_case("stencils")
def stencil_2d(device: Device, module: Module) -> None:
    width, height = 45, 37
    x = _normal(12, height, width)
    out = device.empty((height, width))
    module.kernel("stencil_2d").launch(
        device.upload(x), out, width, height, grid=(3, 5), block=(16, 8)
    )
    expected = x.copy()
    sides = x[1:-1, :-2] + x[1:-1, 2:]
    expected[1:-1, 1:-1] = np.float32(0.25) * (sides + x[:-2, 1:-1] + x[2:, 1:-1])
    _equal(out.download(), expected)


@_case("stencils")
def stencil_3d(device: Device, module: Module) -> None:
    nx, ny, nz = 19, 13, 9
    x = _normal(13, nz, ny, nx)
    out = device.zeros((nz, ny, nx))
    module.kernel("stencil_3d").launch(
        device.upload(x), out, nx, ny, nz, 0.4, 0.1, grid=(3, 4, 3), block=(8, 4, 3)
    )
    i, low, high = slice(1, -1), slice(None, -2), slice(2, None)
    wide = x.astype(np.float64)
    sides = wide[i, i, low] + wide[i, i, high] + wide[i, low, i] + wide[i, high, i]
    expected = np.zeros_like(wide)
    expected[i, i, i] = 0.4 * wide[i, i, i] + 0.1 * (sides + wide[low, i, i] + wide[high, i, i])
    _close(out.download(), expected, 0, 1e-6)


# ---- rows


def _softmax(x: Host) -> Host:
    e: Host = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    e /= e.sum(axis=1, keepdims=True)
    return e


@_case("softmax")
def softmax_block(device: Device, module: Module) -> None:
    rows, columns = 11, 150
    x = 4 * _normal(14, rows, columns)
    out = device.empty((rows, columns))
    module.kernel("softmax_block").launch(device.upload(x), out, columns, grid=rows, block=64)
    _close(out.download(), _softmax(x), 2e-6)


@_case("softmax")
def softmax_online(device: Device, module: Module) -> None:
    rows, columns = 19, 77
    x = 3 * _normal(15, rows, columns)
    out = device.empty((rows, columns))
    module.kernel("softmax_online").launch(
        device.upload(x), out, rows, columns, grid=5, block=(32, 4)
    )
    _close(out.download(), _softmax(x), 1e-5)


@_case("layer_norm")
def layer_norm(device: Device, module: Module) -> None:
    rows, columns = 9, 203
    x = 2 * _normal(16, rows, columns) + 1
    gamma, beta = _normal(17, columns), _normal(18, columns)
    out = device.empty((rows, columns))
    arrays = [device.upload(each) for each in (x, gamma, beta)]
    module.kernel("layer_norm").launch(*arrays, out, columns, 1e-5, grid=rows, block=96)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-5)
    _close(out.download(), centred * scale * gamma + beta, 2e-6, 2e-6)


# ---- histograms


@_case("histogram")
def histogram_block(device: Device, module: Module) -> None:
    n = 4999
    x = np.minimum(_random(19).geometric(0.03, n), 255).astype(np.uint8)
    bins = device.zeros(256, np.uint32)
    module.kernel("histogram_block").launch(device.upload(x), n, bins, grid=4, block=160)
    _equal(bins.download(), np.bincount(x, minlength=256))


@_case("histogram")
def histogram_warps(device: Device, module: Module) -> None:
    n = 1003
    x = _random(20).integers(0, 256, (n, 4), dtype=np.uint8)
    bins = device.zeros(64, np.uint32)
    module.kernel("histogram_warps").launch(device.upload(x), n, bins, grid=3, block=128)
    _equal(bins.download(), np.bincount(x.ravel() >> 2, minlength=64))


# ---- matrices


@_case("matrices")
def matvec(device: Device, module: Module) -> None:
    rows, columns = 45, 137
    A, x = _normal(21, rows, columns), _normal(22, columns)
    y = device.empty(rows)
    module.kernel("matvec").launch(
        device.upload(A), device.upload(x), y, rows, columns, grid=12, block=128
    )
    _close(y.download(), A.astype(np.float64) @ x, 0, 2e-5)


@_case("matrices")
def matmul(device: Device, module: Module) -> None:
    M, N, K = 37, 43, 29
    A, B = _normal(23, M, K), _normal(24, K, N)
    C = device.empty((M, N))
    module.kernel("matmul").launch(
        device.upload(A), device.upload(B), C, M, N, K, grid=(3, 3), block=(16, 16)
    )
    _close(C.download(), A.astype(np.float64) @ B, 0, 1e-5)


@_case("matrices", _NO_FMA)
def spmv_csr(device: Device, module: Module) -> None:
    rows, random = 333, _random(25)
    lengths = random.integers(0, 12, rows)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    columns = random.integers(0, rows, offsets[-1], dtype=np.int32)
    values, x = random.standard_normal(offsets[-1]), random.standard_normal(rows)
    y = device.empty(rows, np.float64)
    arrays = [device.upload(each) for each in (offsets, columns, values, x)]
    module.kernel("spmv_csr").launch(*arrays, y, rows, grid=4, block=96)
    expected = np.zeros(rows)
    np.add.at(expected, np.repeat(np.arange(rows), lengths), values * x[columns])
    _equal(y.download(), expected)


@_case("matrices")
def floyd_warshall(device: Device, module: Module) -> None:
    n = 21
    expected = _random(26).integers(1, 1000, (n, n), dtype=np.int32)
    np.fill_diagonal(expected, 0)
    distance = device.upload(expected)
    for k in range(n):
        module.kernel("floyd_warshall").launch(distance, n, k, grid=(3, 3), block=(8, 8))
        np.minimum(expected, expected[:, k : k + 1] + expected[k], out=expected)
    _equal(distance.download(), expected)


@_case("convolution")
def convolution(device: Device, module: Module) -> None:
    width, height = 45, 37
    image = _random(27).random((height, width), dtype=np.float32)
    out = device.empty((height, width))
    module.kernel("convolve").launch(
        device.upload(image), out, width, height, grid=(3, 3), block=(16, 16)
    )
    line = np.array([1, 4, 6, 4, 1])
    filter_ = np.outer(line, line)
    filter_[2, 2] = -476
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 2, "edge"), (5, 5))
    _close(out.download(), (windows * (filter_ / -256.0)).sum(axis=(2, 3)), 0, 2e-6)


# ---- sorting


@_case("sorting")
def bitonic_sort(device: Device, module: Module) -> None:
    n = 700
    x = _random(28).integers(-(2**31), 2**31, n, dtype=np.int32)
    data = device.upload(x)
    module.kernel("bitonic_sort").launch(data, n, grid=3, block=256)
    _equal(data.download(), np.sort(_padded(x, 256, 2**31 - 1), axis=1).ravel()[:n])


@_case("sorting")
def radix_pass(device: Device, module: Module) -> None:
    x = _random(29).integers(0, 2**32, (7, 128), dtype=np.uint32)
    data = device.upload(x)
    module.kernel("radix_pass").launch(data, 9, 5, grid=7, block=128)
    order = np.argsort(x >> 9 & 31, axis=1, kind="stable")
    _equal(data.download(), np.take_along_axis(x, order, axis=1))


# ---- simulation


@_case("simulation")
def nbody(device: Device, module: Module) -> None:
    n, threads = 150, 64
    bodies = _random(30).random((n, 4), dtype=np.float32)
    out = device.empty((n, 3))
    module.kernel("nbody").launch(
        device.upload(bodies), out, n, 0.01, grid=3, block=threads, shared_bytes=16 * threads
    )
    wide = bodies.astype(np.float64)
    d = wide[None, :, :3] - wide[:, None, :3]
    inverse = (np.square(d).sum(axis=2) + 0.01) ** -1.5
    _close(out.download(), (d * (wide[:, 3] * inverse)[:, :, None]).sum(axis=1), 1e-4, 1e-3)


def _bounced(position: Host, velocity: Host, box: np.float32, periodic: bool) -> None:
    outside = (position < 0) | (position >= box)
    if periodic:
        position[outside] -= box * np.floor(position[outside] / box)
    else:
        position[:] = np.clip(position, np.float32(0), box)
        velocity[outside] *= -1


@_case("simulation", _NO_FMA)
def move_particles(device: Device, module: Module) -> None:
    n = 301
    fields = [
        ("dt", "f4"),
        ("gravity", "f4", 3),
        ("box", "f8"),
        ("count", "i4"),
        ("periodic", "u1"),
    ]
    layout = np.dtype(fields, align=True)
    particles = _random(31).random((n, 2, 3), dtype=np.float32) * np.float32(3) - np.float32(1)
    for periodic in (False, True):
        world = np.array([(0.125, (0.1, -9.8, 0.3), 1.1, n, periodic)], layout)[0]
        data = device.upload(particles)
        module.kernel("move_particles").launch(world, data, grid=3, block=128)
        expected = particles.copy()
        position, velocity = expected[:, 0], expected[:, 1]
        velocity += world["dt"] * world["gravity"]
        position += world["dt"] * velocity
        _bounced(position, velocity, np.float32(world["box"]), periodic)
        _equal(data.download(), expected)


@_case("simulation", _NO_FMA)
def mandelbrot(device: Device, module: Module) -> None:
    width, height, limit = 75, 45, 60
    out = device.empty((height, width), np.uint16)
    step = np.float32(0.04)
    module.kernel("mandelbrot").launch(
        out, width, height, -2.0, 0.9, float(step), limit, grid=(5, 6), block=(16, 8)
    )
    cx = np.float32(-2) + np.arange(width, dtype=np.float32) * step
    cy = (np.float32(0.9) - np.arange(height, dtype=np.float32) * step)[:, None]
    x, y = np.zeros((2, height, width), np.float32)
    expected = np.zeros((height, width), np.uint16)
    for _ in range(limit):
        inside = x * x + y * y <= 4
        expected += inside
        following = x * x - y * y + cx, 2 * x * y + cy
        x, y = (np.where(inside, *pair) for pair in zip(following, (x, y), strict=True))
    _equal(out.download(), expected)


@_case("simulation")
def life(device: Device, module: Module) -> None:
    width, height = 45, 37
    cells = (_random(32).random((height, width)) < 0.3).astype(np.uint8)
    now, following = device.upload(cells), device.empty((height, width), np.uint8)
    for _ in range(3):
        module.kernel("life").launch(now, following, width, height, grid=(2, 10), block=(32, 4))
        now, following = following, now
        shifts = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]
        neighbours = sum(np.roll(cells, shift, axis=(0, 1)) for shift in shifts)
        cells = ((neighbours == 3) | ((neighbours == 2) & (cells == 1))).astype(np.uint8)
    _equal(now.download(), cells)


# ---- integers


@_case("integers")
def prime_sieve(device: Device, module: Module) -> None:
    first, length = 10_000_000_019, 601
    primes = np.array([p for p in range(2, 300) if all(p % q for q in range(2, p))], np.uint32)
    marks = device.zeros(length, np.uint8)
    module.kernel("mark_multiples").launch(
        device.upload(primes), primes.size, first, length, marks, grid=2, block=32
    )
    numbers = first + np.arange(length, dtype=np.uint64)
    _equal(marks.download(), (numbers[:, None] % primes == 0).any(axis=1))


@_case("integers")
def divisions(device: Device, module: Module) -> None:
    n, random = 300, _random(33)
    a = random.integers(-(2**63), 2**63, n) >> random.integers(0, 60, n)
    b = random.integers(-(2**63), 2**63, n) >> random.integers(0, 62, n)
    b[b == 0] = 7
    outs = [device.empty(n, np.int64) for _ in range(2)]
    module.kernel("divisions").launch(
        device.upload(a), device.upload(b), *outs, n, grid=3, block=128
    )
    # C truncates towards zero, numpy's // rounds down.
    remainder = np.fmod(a, b)
    _equal(outs[1].download(), remainder)
    _equal(outs[0].download(), (a - remainder) // b)


@_case("integers")
def narrow_divisions(device: Device, module: Module) -> None:
    n, random = 500, _random(34)
    a = random.integers(-(2**31), 2**31, n, dtype=np.int32)
    b = random.integers(1, 2**31, n, dtype=np.int32) >> random.integers(0, 31, n, dtype=np.int32)
    b = np.maximum(b, 1) * random.choice(np.array([-1, 1], np.int32), n)
    c = random.integers(0, 256, n, dtype=np.uint8)
    out = device.empty(n, np.int32)
    arrays = [device.upload(each) for each in (a, b, c)]
    module.kernel("narrow_divisions").launch(*arrays, out, n, grid=4, block=128)
    remainder = np.fmod(a, b).astype(np.int64)
    total = (a - remainder) // b + remainder * 7 + a.view(np.uint32) // np.uint32(10) + c % 11
    _equal(out.download(), total.astype(np.int32))


@_case("integers")
def monte_carlo(device: Device, module: Module) -> None:
    blocks, threads, samples = 7, 96, 50
    hits = device.zeros(1, np.uint64)
    module.kernel("monte_carlo").launch(hits, samples, grid=blocks, block=threads)
    state = np.arange(blocks * threads, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(12345)
    expected = 0
    for _ in range(samples):
        state ^= state << np.uint32(13)
        state ^= state >> np.uint32(17)
        state ^= state << np.uint32(5)
        x, y = (state & np.uint32(0xFFFF)).astype(np.uint64), (state >> np.uint32(16))
        expected += int((x * x + y.astype(np.uint64) ** 2 < 2**32).sum())
    _equal(hits.download(), expected)
    assert abs(4 * expected / (blocks * threads * samples) - np.pi) < 0.05


@_case("integers")
def lcg(device: Device, module: Module) -> None:
    n, seed, bound = 501, 0x9E3779B97F4A7C15, 10**15 + 37
    out = device.empty(n, np.uint64)
    module.kernel("lcg").launch(seed, bound, out, n, grid=4, block=128)
    expected, state = [], seed
    for _ in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        expected.append(state * bound >> 64)
    _equal(out.download(), np.array(expected, np.uint64))


def _tricks(i: int, v: int, w: int) -> list[int]:
    """The kernel's ten results, with Python's integers."""
    s, wide, mask = i % 32, w << 32 | v, 2**32 - 1
    data = (wide).to_bytes(8, "little")
    picked = bytes(data[selector] for selector in (0, 4, 2, 6))
    gray = v ^ v >> 1
    for shift in (16, 8, 4, 2, 1):
        gray ^= gray >> shift
    return [
        wide << s >> 32 & mask,
        wide >> s & mask,
        int(f"{v:032b}"[::-1], 2),
        32 - v.bit_length(),
        (v & -v).bit_length(),
        (v & w).bit_count(),
        int.from_bytes(picked, "little"),
        (v << s | v >> (32 - s) % 32) & mask,
        gray,
        int("".join(f"0{bit}" for bit in f"{v & 0xFFFF:016b}"), 2),
    ]


@_case("integers")
def bit_tricks(device: Device, module: Module) -> None:
    n = 203
    x = _random(35).integers(0, 2**32, n, dtype=np.uint32)
    x[:3] = 0, 1, 2**31
    out = device.empty((n, 10), np.uint32)
    module.kernel("bit_tricks").launch(device.upload(x), out, n, grid=4, block=64)
    values = [int(value) for value in x]
    expected = [_tricks(i, v, values[n - 1 - i]) for i, v in enumerate(values)]
    _equal(out.download(), np.array(expected, np.uint32))


@_case("integers")
def crc32(device: Device, module: Module) -> None:
    messages, random = 70, _random(36)
    lengths = random.integers(0, 60, messages)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    text = random.integers(0, 256, offsets[-1], dtype=np.uint8)
    out = device.empty(messages, np.uint32)
    module.kernel("crc32").launch(
        device.upload(text), device.upload(offsets), out, messages, grid=2, block=48
    )
    pieces = np.split(text, offsets[1:-1])
    _equal(out.download(), np.array([zlib.crc32(piece.tobytes()) for piece in pieces], np.uint32))


@_case("integers")
def dot_bytes(device: Device, module: Module) -> None:
    rows, columns, quads, random = 21, 35, 13, _random(37)
    a, b = (random.integers(-128, 128, (n, 4 * quads), dtype=np.int8) for n in (rows, columns))
    c = device.empty((rows, columns), np.int32)
    module.kernel("dot_bytes").launch(
        device.upload(a.view(np.int32)),
        device.upload(b.view(np.int32)),
        c,
        rows,
        columns,
        quads,
        grid=(3, 3),
        block=(16, 8),
    )
    _equal(c.download(), a.astype(np.int32) @ b.T.astype(np.int32))


@_case("integers")
def quantise(device: Device, module: Module) -> None:
    n, scale = 501, np.float32(0.0173)
    x = _normal(38, n)
    out, back = device.empty(n, np.int8), device.empty(n)
    module.kernel("quantise").launch(
        device.upload(x), out, back, float(scale), n, grid=4, block=128
    )
    expected = np.clip(np.rint(x / scale), -128, 127)
    _equal(out.download(), expected)
    _equal(back.download(), expected * scale)


# ---- search


@_case("search")
def find_bytes(device: Device, module: Module) -> None:
    text = _random(39).choice(np.frombuffer(b"abc", np.uint8), 3001).tobytes()
    pattern = b"abcab"
    first, count = device.upload(np.array([2**31 - 1], np.int32)), device.zeros(1, np.int32)
    module.kernel("find_bytes").launch(
        device.upload(np.frombuffer(text, np.int8)),
        len(text),
        device.upload(np.frombuffer(pattern, np.int8)),
        len(pattern),
        first,
        count,
        grid=_blocks(len(text), 128),
        block=128,
    )
    places = [i for i in range(len(text)) if text.startswith(pattern, i)]
    assert (first.download()[0], count.download()[0]) == (places[0], len(places))


@_case("search")
def lower_bound(device: Device, module: Module) -> None:
    n, m = 333, 501
    values, keys = np.sort(_normal(40, n).round(1)), _normal(41, m).round(1)
    places = device.empty(m, np.int32)
    module.kernel("lower_bound").launch(
        device.upload(values), n, device.upload(keys), places, m, grid=6, block=96
    )
    _equal(places.download(), np.searchsorted(values, keys))


@_case("search")
def linked_list(device: Device, module: Module) -> None:
    n, lists, random = 400, 10, _random(42)
    chains = random.permutation(n).astype(np.int32).reshape(lists, -1)
    following = np.empty(n, np.int32)
    following[chains[:, :-1]], following[chains[:, -1]] = chains[:, 1:], -1
    values = random.integers(-99, 99, n, dtype=np.int32)
    nodes = device.empty((n, 16), np.uint8)
    module.kernel("link_nodes").launch(
        nodes, device.upload(following), device.upload(values), n, grid=4, block=128
    )
    sums, lengths = (device.empty(n, np.int32) for _ in range(2))
    heads = device.upload(np.arange(n, dtype=np.int32))
    module.kernel("list_sums").launch(nodes, heads, sums, lengths, n, grid=7, block=64)
    expected = np.empty((2, n), np.int32)
    expected[0, chains] = values[chains][:, ::-1].cumsum(axis=1)[:, ::-1]
    expected[1, chains] = np.arange(n // lists, 0, -1)
    _equal([sums.download(), lengths.download()], expected)


@_case("search")
def filter_positive(device: Device, module: Module) -> None:
    n = 1001
    x = _random(43).integers(-50, 50, n, dtype=np.int32)
    out, counter = device.zeros(n, np.int32), device.zeros(1, np.int32)
    module.kernel("filter_positive").launch(device.upload(x), out, counter, n, grid=8, block=128)
    kept = int(counter.download()[0])
    _equal(np.sort(out.download()[:kept]), np.sort(x[x > 0]))


@_case("search")
def count_by_key(device: Device, module: Module) -> None:
    n = 1501
    keys = _random(44).integers(0, 9, n, dtype=np.uint8)
    counts = device.zeros(9, np.int32)
    module.kernel("count_by_key").launch(device.upload(keys), counts, n, grid=12, block=128)
    _equal(counts.download(), np.bincount(keys))


# ---- calls


@_case("calls")
def recursion(device: Device, module: Module) -> None:
    n = 161
    x = _random(45).integers(0, 1000, n, dtype=np.int32)
    fibonaccis, gcds = device.empty(n, np.int32), device.empty(n, np.uint32)
    module.kernel("recursion").launch(device.upload(x), fibonaccis, gcds, n, grid=3, block=64)
    _equal(fibonaccis.download(), np.array([0, 1, 1, 2, 3, 5, 8, 13])[x % 8])
    _equal(gcds.download(), np.gcd(x, 360 + np.arange(n)))


@_case("calls")
def dispatch(device: Device, module: Module) -> None:
    n, random = 300, _random(46)
    which = random.integers(0, 4, n, dtype=np.int32)
    a, b = random.integers(-99, 99, (2, n), dtype=np.int32)
    out = device.empty(n, np.int32)
    arrays = [device.upload(each) for each in (which, a, b)]
    module.kernel("dispatch").launch(*arrays, out, n, grid=3, block=128)
    _equal(out.download(), np.choose(which, [a + b, a - b, a * b, np.maximum(a, b)]))


@_case("calls")
def virtual_calls(device: Device, module: Module) -> None:
    n, random = 200, _random(47)
    widths, heights = random.integers(0, 5, (2, n), dtype=np.int32)
    out = device.empty(n, np.int32)
    module.kernel("areas").launch(
        device.upload(widths), device.upload(heights), out, n, grid=4, block=64
    )
    _equal(out.download(), widths * np.where(heights == 0, widths, heights))


def _interpret(value: int, program: Host) -> int:
    """What the kernel's machine does, on a 32-bit signed integer."""
    pc = 0
    while pc < len(program):
        operation = int(program[pc])
        match operation:
            case 0 | 1 | 2 | 3:
                value = (value + 7, value * 3, value ^ 0x5A5A, -value)[operation]
            case 4:
                value >>= 2
            case 5:
                value = abs(value) // 5 * (1 if value > 0 else -1)
            case 6:
                value = (value % 2**32).bit_count() + pc
            case 7:
                value = min(value, 1000 - pc)
            case 8:
                value = value << 3 | pc
            case _:
                pc += 1
        value = (value + 2**31) % 2**32 - 2**31
        pc += 1
    return value


@_case("calls")
def interpreter(device: Device, module: Module) -> None:
    n, length = 203, 20
    programs = _random(48).integers(0, 11, (n, length), dtype=np.int32)
    out = device.empty(n, np.int32)
    module.kernel("interpreter").launch(device.upload(programs), length, out, n, grid=4, block=64)
    _equal(out.download(), [_interpret(i, program) for i, program in enumerate(programs)])


@_case("calls")
def insertion_sort(device: Device, module: Module) -> None:
    n, size = 300, 11
    x = _random(49).integers(-(2**15), 2**15, (n, size), dtype=np.int16)
    out = device.empty((n, size), np.int16)
    module.kernel("insertion_sort").launch(device.upload(x), out, n, grid=3, block=128)
    _equal(out.download(), np.sort(x, axis=1))


# ---- precisions


@_case("precisions")
def dot_double(device: Device, module: Module) -> None:
    n = 1999
    x, y = _random(50).standard_normal((2, n))
    result = device.zeros(1, np.float64)
    module.kernel("dot_double").launch(
        device.upload(x), device.upload(y), result, n, grid=6, block=64
    )
    _close(result.download()[0], x @ y, 0, 1e-11)


@_case("precisions")
def newton_root(device: Device, module: Module) -> None:
    n = 200
    x = 10.0 ** _random(51).uniform(-6, 6, n)
    roots, reciprocals = (device.empty(n, np.float64) for _ in range(2))
    module.kernel("newton_root").launch(device.upload(x), roots, reciprocals, n, grid=4, block=64)
    _close(roots.download(), np.sqrt(x), 1e-15)
    _equal(reciprocals.download(), 1 / np.sqrt(x))


@_case("precisions")
def axpy_half(device: Device, module: Module) -> None:
    n, a = 1001, 1.25
    x, y = _normal(52, 2, n).astype(np.float16)
    sums = device.upload(y)
    module.kernel("axpy_half").launch(a, device.upload(x), sums, n, grid=4, block=128)
    # The product is exact in double precision, so that there is one rounding, as in an FMA.
    _equal(sums.download(), (a * x.astype(np.float64) + y).astype(np.float16))


def _bfloat16(values: Host) -> Host:
    """The bits of float32s rounded to bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


@_case("precisions")
def rows_bfloat16(device: Device, module: Module) -> None:
    rows, columns = 101, 23
    bits = _bfloat16(_normal(53, rows, columns))
    x, out = device.upload(bits), device.empty(rows, np.uint16)
    # numpy has no bfloat16 that the parameters could be held against; an address is of no type.
    module.kernel("rows_bfloat16").launch(x.pointer, out.pointer, rows, columns, grid=2, block=64)
    values = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    _equal(out.download(), _bfloat16(values.cumsum(axis=1, dtype=np.float32)[:, -1]))


@_case("precisions")
def convert(device: Device, module: Module) -> None:
    n = 333
    x = _normal(54, n) * np.float32(10) ** _random(55).uniform(-7, 6, n).astype(np.float32)
    dtypes = (np.float16, np.int32, np.uint32, np.float64, np.float32)
    outs = [device.empty(n, dtype) for dtype in dtypes]
    module.kernel("convert").launch(device.upload(x), *outs, n, grid=3, block=128)
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    wide = x.astype(np.float64)
    expected = half, np.rint(x), np.floor(np.abs(x)), wide, (wide / 3).astype(np.float32)
    for out, want in zip(outs, expected, strict=True):
        _equal(out.download(), want)


# ---- numerics


@_case("numerics")
def fft(device: Device, module: Module) -> None:
    x = _normal(56, 5, 128, 2)
    out = device.empty((5, 128, 2))
    module.kernel("fft").launch(device.upload(x), out, grid=5, block=64)
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1])
    _close(out.download(), np.stack([expected.real, expected.imag], axis=-1), 0, 5e-5)


@_case("numerics", _NO_FMA)
def cholesky(device: Device, module: Module) -> None:
    count, side = 7, 9
    x = _normal(57, count, side, side)
    a = x @ x.transpose(0, 2, 1) + np.float32(side) * np.eye(side, dtype=np.float32)
    data = device.upload(a)
    module.kernel("cholesky").launch(data, grid=count, block=(side, side))
    for k in range(side):
        a[:, k, k] = np.sqrt(a[:, k, k])
        a[:, k + 1 :, k] /= a[:, k, k, None]
        column = a[:, k + 1 :, k]
        a[:, k + 1 :, k + 1 :] -= column[:, :, None] * column[:, None, :]
    _equal(data.download(), np.tril(a))


@_case("numerics")
def functions(device: Device, module: Module) -> None:
    n = 300
    x = _random(58).uniform(-4, 4, n).astype(np.float32)
    out = device.empty((n, 8))
    module.kernel("functions").launch(device.upload(x), out, n, grid=3, block=128)
    w = x.astype(np.float64)
    simple = np.exp(w), np.log(abs(w) + 0.5), np.sin(w), np.cos(w), np.tanh(w), abs(w) ** 1.5
    actual = out.download()
    _close(actual[:, :6], np.stack(simple, axis=1), 1e-6, 3e-7)
    _close(actual[:, 6], np.arctan2(w, 2.0), 1e-6)
    # numpy has no error function; its derivative's integral, in steps of a thousandth.
    grid = np.linspace(-4.5, 4.5, 9001)
    middle = (grid[1:] + grid[:-1]) / 2
    integral = np.concatenate([[0], (2e-3 / np.sqrt(np.pi) * np.exp(-(middle**2))).cumsum()]) - 1
    _close(actual[:, 7], np.interp(w, grid, integral), 0, 2e-6)


# ---- threads and blocks that work together


@_case("together")
def dynamic_shared(device: Device, module: Module) -> None:
    n, threads = 700, 96
    values, keys = _random(59).standard_normal(n), np.arange(n, dtype=np.int32)
    outs = device.empty(n, np.float64), device.empty(n, np.int32)
    module.kernel("reverse_pairs").launch(
        device.upload(values),
        device.upload(keys),
        *outs,
        n,
        grid=_blocks(n, threads),
        block=threads,
        shared_bytes=12 * threads,
    )
    order = np.concatenate([part[::-1] for part in np.split(keys, range(threads, n, threads))])
    _equal(outs[0].download(), values[order])
    _equal(outs[1].download(), order)


@_case("together")
def producer_consumer(device: Device, module: Module) -> None:
    blocks, tiles = 5, 7
    x = _random(60).integers(-99, 99, (blocks, tiles, 96), dtype=np.int32)
    out = device.empty((blocks, 96), np.int32)
    module.kernel("producer_consumer").launch(device.upload(x), out, tiles, grid=blocks, block=128)
    powers = 3 ** np.arange(tiles - 1, -1, -1)
    _equal(out.download(), np.einsum("btx,t->bx", x, powers)[:, ::-1])


@_case("together")
def lock_per_block(device: Device, module: Module) -> None:
    bids = _random(61).permutation(1000)[:37].astype(np.int32)
    account = device.zeros(4, np.int32)
    module.kernel("lock_per_block").launch(account, device.upload(bids), grid=37, block=64)
    _equal(account.download(), [0, bids.max(), bids.argmax(), 37])


@_case("together")
def lock_per_thread(device: Device, module: Module) -> None:
    n = 53
    values = _random(62).integers(-(2**31), 2**31, n, dtype=np.int32)
    lock, total = device.zeros(1, np.int32), device.zeros(1, np.int64)
    module.kernel("lock_per_thread").launch(lock, total, device.upload(values), n, grid=4, block=16)
    assert (lock.download()[0], total.download()[0]) == (0, values.sum(dtype=np.int64))


@_case("together")
def last_block(device: Device, module: Module) -> None:
    n, blocks = 3001, 9
    x = _normal(63, n)
    partial, out = device.empty(blocks), device.empty(1)
    sums = np.zeros(blocks * 64, np.float32)
    for row in _padded(x, sums.size):
        sums += row
    partials = _tree(sums.reshape(blocks, 64))
    # The second launch finds the counter as the first one left it.
    for _ in range(2):
        out.fill(0)
        module.kernel("last_block").launch(device.upload(x), partial, out, n, grid=blocks, block=64)
        _equal(partial.download(), partials)
        _equal(out.download(), partials.cumsum(dtype=np.float32)[-1])


@_case("together")
def copy_pipeline(device: Device, module: Module) -> None:
    blocks, chunks = 3, 11
    x = _normal(64, blocks, chunks, 64, 4)
    out = device.empty((blocks, 64))
    module.kernel("copy_pipeline").launch(device.upload(x), out, chunks, grid=blocks, block=64)
    expected = np.zeros((blocks, 64), np.float32)
    for chunk in x.transpose(1, 0, 2, 3):
        expected += chunk[..., 0] + chunk[..., 1] + chunk[..., 2] + chunk[..., 3]
    _equal(out.download(), expected[:, ::-1])


@_case("pipeline_api")
def rotate_tile(device: Device, module: Module) -> None:
    n = 300
    x = _random(65).integers(-99, 99, (n, 2), dtype=np.int32)
    out = device.empty((n, 2), np.int32)
    module.kernel("rotate_tile").launch(device.upload(x), out, n, grid=3, block=(32, 2))
    pieces = np.split(x[:, 1], range(32, n, 32))
    following = np.concatenate([np.roll(piece, -1) for piece in pieces])
    _equal(out.download(), np.stack([following, x[:, 0]], axis=1))


@_case("pipeline_api")
def pad_rows(device: Device, module: Module) -> None:
    rows, n, threads = 5, 101, 32
    x = _random(71).integers(1, 99, (rows, n), dtype=np.int32)
    # In memory a row begins at a multiple of 16 bytes, and the last one ends where its data do.
    there = np.zeros((rows, 104), np.int32)
    there[:, :n] = x
    out = device.empty((rows, 4 * threads), np.int32)
    module.kernel("pad_rows").launch(
        device.upload(there.reshape(-1)[: -(104 - n)]), out, n, rows, grid=2, block=threads
    )
    _equal(out.download(), np.pad(x, ((0, 0), (0, 4 * threads - n))))


@_case("split_barriers", _NO_FMA)
def smooth_ring(device: Device, module: Module) -> None:
    blocks, threads, rounds = 3, 64, 7
    x = _normal(72, blocks, threads)
    out = device.empty((blocks, threads))
    module.kernel("smooth_ring").launch(device.upload(x), out, rounds, grid=blocks, block=threads)
    for _ in range(rounds):
        around = np.roll(x, 1, axis=1) + np.roll(x, -1, axis=1)
        x = np.float32(0.5) * x + np.float32(0.25) * around
    _equal(out.download(), x)


@_case("split_barriers")
def leave_one_by_one(device: Device, module: Module) -> None:
    threads = 40
    out = device.zeros(threads, np.int32)
    module.kernel("leave_one_by_one").launch(out, grid=1, block=threads)
    counted = np.cumsum(np.arange(threads, 0, -1))
    _equal(out.download(), np.append(counted[:-1], 0))


@_case("tiles")
def look_in_tiles(device: Device, module: Module) -> None:
    x = _random(73).integers(0, 99, 192, dtype=np.int32)
    for size in (4, 16):
        out = device.zeros(192, np.int32)
        module.kernel(f"look_of_{size}").launch(device.upload(x), out, grid=2, block=96)
        tiles = x.reshape(-1, size)
        odd = (tiles & 1).sum(axis=1)
        state = (tiles == 7).any(axis=1) + 2 * (tiles < 90).all(axis=1)
        _equal(out.download(), np.repeat((tiles.max(axis=1) * 100 + odd) * 4 + state, size))


@_case("clusters", min_capability=(9, 0))
def histogram_cluster(device: Device, module: Module) -> None:
    n, cluster = 1999, 4
    x = _random(67).integers(0, 200, n, dtype=np.int32)
    bins = device.zeros(200, np.uint32)
    module.kernel("histogram_cluster").launch(
        device.upload(x), n, bins, grid=8, block=64, cluster=cluster
    )
    _equal(bins.download(), np.bincount(x, minlength=200))


CASES: tuple[Case, ...] = tuple(_CASES)
