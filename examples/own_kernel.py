"""Compile a kernel of your own, see what it uses, and run it: on a GPU, or on the emulator."""

import argparse

import numpy as np

import lowgemm

SOURCE = """
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", choices=["gpu", "emulator"], help="default: the GPU if any")
device = lowgemm.open_device(parser.parse_args().device)
build = lowgemm.compile_source(SOURCE, arch=device.architecture)
print(build.kernel("saxpy").resources)
x, y = device.upload(np.ones(1000, np.float32)), device.upload(np.ones(1000, np.float32))
device.load(build).kernel("saxpy").launch(1000, 2.0, x, y, grid=4, block=256)
print(device.name, y.download()[:4])
