"""Compile a kernel of your own, see what it uses, and run it where there is a GPU."""

import numpy as np

import lowgemm

SOURCE = """
__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""
gpu = lowgemm.Gpu() if lowgemm.gpu_available() else None
build = lowgemm.compile_source(SOURCE, arch=gpu.architecture if gpu else "sm_90")
print(build.kernel("saxpy").resources)
if gpu:
    x, y = gpu.upload(np.ones(1000, np.float32)), gpu.upload(np.ones(1000, np.float32))
    gpu.load(build).kernel("saxpy").launch(1000, 2.0, x, y, grid=4, block=256)
    print(y.download()[:4])
