"""Exact FP32 products on CUDA cores: of numpy arrays, and of arrays on a device."""

import argparse

import numpy as np

import lowgemm

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", choices=["gpu", "emulator"], help="default: the GPU if any")
device = lowgemm.open_device(parser.parse_args().device)

rng = np.random.default_rng(0)
x, w = rng.standard_normal((3, 40, 50), np.float32), rng.standard_normal((60, 50), np.float32)
y = lowgemm.sgemm(x, w, transpose_b=True)  # as numpy.matmul: w for each of the three
print("numpy:", y.shape, "largest error", f"{np.abs(y - x.astype('f8') @ w.T).max():.1e}")

a, b = device.upload(x[0]), device.upload(w)
c = device.zeros((40, 60))
for _ in range(2):  # C = A B^T + C / 2, nothing copied and nothing waited for
    lowgemm.sgemm(a, b, c, beta=0.5, transpose_b=True)
print(f"{device.name}: C[0, :3] =", c.download()[0, :3])
