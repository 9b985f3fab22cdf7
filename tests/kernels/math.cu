// Special functions: MUFU and their slow paths.
__global__ void functions(const float* x, float* y) {
    float v = x[threadIdx.x];
    y[threadIdx.x] = sinf(v) + __cosf(v) + logf(v) + rsqrtf(v) + tanhf(v) + powf(v, 2.5f) +
                     floorf(v) + truncf(v) + __frcp_rn(v) + exp2f(v);
}
