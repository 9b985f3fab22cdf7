"""Find a missing barrier, a stray access and a bank conflict with no GPU."""

import numpy as np

import lowgemm

SOURCE = """
__global__ void mirror(const float* in, float* out, int n) {
    __shared__ float tile[512];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[2 * threadIdx.x] = in[i];  // every second bank; the last block reads behind the end
    out[i] = tile[2 * (blockDim.x - 1 - threadIdx.x)];  // no barrier before
}"""
with lowgemm.Emulator("sm_90", findings="collect") as device:
    build = lowgemm.compile_source(SOURCE, arch="sm_90")
    data, out = device.upload(np.ones(1000, np.float32)), device.empty(1000)
    kernel = device.load(build).kernel("mirror")
    kernel.launch(data, out, 1000, grid=4, block=256)
    for finding in device.findings:
        print(finding)
    print(kernel.counts.worst_access())
