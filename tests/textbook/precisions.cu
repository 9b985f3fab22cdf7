// Double and half precision, bfloat16, and all three turned into each other.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void dot_double(const double* x, const double* y, double* result, int n) {
    __shared__ double cache[64];
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += x[i] * y[i];
    cache[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) cache[threadIdx.x] += cache[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(result, cache[0]);
}

__global__ void newton_root(const double* in, double* roots, double* reciprocals, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i] > 1.0 ? in[i] : 1.0;
    while (true) {
        double next = 0.5 * (x + in[i] / x);
        if (next >= x) break;
        x = next;
    }
    roots[i] = x;
    reciprocals[i] = 1.0 / sqrt(in[i]);
}

__global__ void axpy_half(float a, const __half* x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 factor = __float2half2_rn(a);
    if (i < n / 2) {
        const __half2* pairs = reinterpret_cast<const __half2*>(x);
        __half2* sums = reinterpret_cast<__half2*>(y);
        sums[i] = __hfma2(factor, pairs[i], sums[i]);
    } else if (i == n / 2 && n % 2 == 1) {
        y[n - 1] = __hfma(__low2half(factor), x[n - 1], y[n - 1]);
    }
}

__global__ void rows_bfloat16(const __nv_bfloat16* in, __nv_bfloat16* out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < columns; ++c) sum += __bfloat162float(in[row * columns + c]);
    out[row] = __float2bfloat16(sum);
}

__global__ void convert(const float* in, __half* half, int* rounded, unsigned* floored, double* wide,
                        float* back, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    half[i] = __float2half(in[i]);
    rounded[i] = __float2int_rn(in[i]);
    floored[i] = (unsigned)floorf(fabsf(in[i]));
    wide[i] = in[i];
    back[i] = (float)(wide[i] / 3.0);
}
