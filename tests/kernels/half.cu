// Half precision and bfloat16, in pairs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
__global__ void axpy_half2(int n, __half2 a, const __half2* x, __half2* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hfma2(a, x[i], y[i]);
}
__global__ void to_bfloat16(int n, const float* x, __nv_bfloat16* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(x[i]);
}
__global__ void half_max(int n, const __half* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __half2float(__hmax(x[i], x[n - 1 - i]));
}
