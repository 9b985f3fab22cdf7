// Matrix-vector and matrix-matrix products, dense and sparse.
__global__ void matvec(const float* A, const float* x, float* y, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = lane; c < columns; c += 32) sum += A[row * columns + c] * x[c];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) y[row] = sum;
}

#define TILE 16

__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < K; k += TILE) {
        As[threadIdx.y][threadIdx.x] =
            row < M && k + threadIdx.x < K ? A[row * K + k + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] =
            column < N && k + threadIdx.y < K ? B[(k + threadIdx.y) * N + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) C[row * N + column] = sum;
}

__global__ void spmv_csr(const int* offsets, const int* columns, const double* values,
                         const double* x, double* y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double sum = 0;
    for (int i = offsets[row]; i < offsets[row + 1]; ++i) sum += values[i] * x[columns[i]];
    y[row] = sum;
}

__global__ void floyd_warshall(int* distance, int n, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= n) return;
    distance[i * n + j] = min(distance[i * n + j], distance[i * n + k] + distance[k * n + j]);
}
