// Transposes of a matrix of any size: plain, through a tile with bank conflicts, through a padded tile.
#define TILE 32
#define ROWS 8

__global__ void transpose_naive(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}

template <int PAD>
__device__ void transpose(const float* in, float* out, int width, int height,
                          float (&tile)[TILE][TILE + PAD]) {
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void transpose_tiled(const float* in, float* out, int width, int height) {
    __shared__ float tile[TILE][TILE];
    transpose<0>(in, out, width, height, tile);
}

__global__ void transpose_padded(const float* in, float* out, int width, int height) {
    __shared__ float tile[TILE][TILE + 1];
    transpose<1>(in, out, width, height, tile);
}
