// Seven-point stencil on a 3-D grid.
__global__ void stencil7(const float* __restrict__ in, float* __restrict__ out, int nx, int ny,
                         int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= nx - 1 || y >= ny - 1) return;
    for (int z = 1; z < nz - 1; ++z) {
        size_t i = ((size_t)z * ny + y) * nx + x;
        out[i] = 0.4f * in[i] + 0.1f * (in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] +
                                        in[i - (size_t)nx * ny] + in[i + (size_t)nx * ny]);
    }
}
