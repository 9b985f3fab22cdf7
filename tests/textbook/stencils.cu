// Stencils in one, two and three dimensions.
#define RADIUS 3
#define BLOCK 96

__global__ void stencil_1d(const int* in, int* out, int n) {
    __shared__ int line[BLOCK + 2 * RADIUS];
    int global = blockIdx.x * blockDim.x + threadIdx.x;
    int local = threadIdx.x + RADIUS;
    line[local] = global < n ? in[global] : 0;
    if (threadIdx.x < RADIUS) {
        line[local - RADIUS] = global >= RADIUS && global - RADIUS < n ? in[global - RADIUS] : 0;
        line[local + BLOCK] = global + BLOCK < n ? in[global + BLOCK] : 0;
    }
    __syncthreads();
    int sum = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) sum += line[local + offset];
    if (global < n) out[global] = sum;
}

__global__ void stencil_2d(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int i = y * width + x;
    if (x == 0 || y == 0 || x == width - 1 || y == height - 1)
        out[i] = in[i];
    else
        out[i] = 0.25f * (in[i - 1] + in[i + 1] + in[i - width] + in[i + width]);
}

__global__ void stencil_3d(const float* __restrict__ in, float* __restrict__ out, int nx, int ny,
                           int nz, float c0, float c1) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
    size_t i = ((size_t)z * ny + y) * nx + x;
    size_t plane = (size_t)nx * ny;
    out[i] = c0 * in[i] +
             c1 * (in[i - 1] + in[i + 1] + in[i - nx] + in[i + nx] + in[i - plane] + in[i + plane]);
}
