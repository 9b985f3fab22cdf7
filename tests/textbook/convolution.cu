// A 5 x 5 convolution: the filter in constant memory, the image's tile with its halo in shared memory.
#define RADIUS 2
#define SIDE (2 * RADIUS + 1)
#define TILE 16
#define HALO (TILE + 2 * RADIUS)

__constant__ float filter[SIDE][SIDE] = {
    {1, 4, 6, 4, 1}, {4, 16, 24, 16, 4}, {6, 24, -476, 24, 6}, {4, 16, 24, 16, 4}, {1, 4, 6, 4, 1},
};

__global__ void convolve(const float* image, float* out, int width, int height) {
    __shared__ float tile[HALO][HALO];
    int left = blockIdx.x * TILE - RADIUS, top = blockIdx.y * TILE - RADIUS;
    for (int y = threadIdx.y; y < HALO; y += TILE)
        for (int x = threadIdx.x; x < HALO; x += TILE) {
            int gx = min(max(left + x, 0), width - 1);
            int gy = min(max(top + y, 0), height - 1);
            tile[y][x] = image[gy * width + gx];
        }
    __syncthreads();
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) sum += filter[i][j] * tile[threadIdx.y + i][threadIdx.x + j];
    out[y * width + x] = sum / -256.0f;
}
