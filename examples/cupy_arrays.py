"""A kernel of your own on CuPy arrays: no copies, CuPy's stream, arguments checked by type."""

import cupy

import lowgemm
from lowgemm.errors import DtypeError

SOURCE = """
__global__ void row_sums(int rows, int cols, const float* x, float* sums) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int col = 0; col < cols; ++col) sum += x[(size_t)row * cols + col];
    sums[row] = sum;
}"""

gpu = lowgemm.Gpu()
kernel = gpu.load(lowgemm.compile_source(SOURCE, arch=gpu.architecture)).kernel("row_sums")

x = cupy.random.rand(1000, 64, dtype=cupy.float32)
sums = cupy.empty(1000, dtype=cupy.float32)
stream = cupy.cuda.get_current_stream()
kernel.launch(1000, 64, x, sums, grid=4, block=256, stream=stream)
print("largest difference to CuPy:", float(abs(sums - x.sum(axis=1)).max()))

try:
    kernel.launch(1000, 64, x.astype(cupy.float64), sums, grid=4, block=256, stream=stream)
except DtypeError as error:
    print(error)
