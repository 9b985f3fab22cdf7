// A fast Fourier transform, a Cholesky factor of small matrices, functions of the mathematics library.
#define POINTS 128
#define LOG_POINTS 7

__global__ void fft(const float2* in, float2* out) {
    __shared__ float2 x[POINTS];
    int t = threadIdx.x;
    in += blockIdx.x * POINTS;
    out += blockIdx.x * POINTS;
    for (int i = t; i < POINTS; i += blockDim.x) x[__brev(i) >> (32 - LOG_POINTS)] = in[i];
    __syncthreads();
    for (int half = 1; half < POINTS; half *= 2) {
        int k = t % half;
        int even = t / half * 2 * half + k, odd = even + half;
        float sine, cosine;
        sincospif(-(float)k / half, &sine, &cosine);
        float2 a = x[even], b = x[odd];
        float2 turned = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
        x[even] = make_float2(a.x + turned.x, a.y + turned.y);
        x[odd] = make_float2(a.x - turned.x, a.y - turned.y);
        __syncthreads();
    }
    for (int i = t; i < POINTS; i += blockDim.x) out[i] = x[i];
}

#define SIDE 9

__global__ void cholesky(float* matrices) {
    __shared__ float a[SIDE][SIDE];
    float* matrix = matrices + blockIdx.x * SIDE * SIDE;
    int row = threadIdx.y, column = threadIdx.x;
    a[row][column] = matrix[row * SIDE + column];
    __syncthreads();
    for (int k = 0; k < SIDE; ++k) {
        if (row == k && column == k) a[k][k] = sqrtf(a[k][k]);
        __syncthreads();
        if (column == k && row > k) a[row][k] /= a[k][k];
        __syncthreads();
        if (column > k && row >= column) a[row][column] -= a[row][k] * a[column][k];
        __syncthreads();
    }
    matrix[row * SIDE + column] = row >= column ? a[row][column] : 0.0f;
}

__global__ void functions(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    float* o = out + 8 * i;
    o[0] = expf(x);
    o[1] = logf(fabsf(x) + 0.5f);
    o[2] = sinf(x);
    o[3] = cosf(x);
    o[4] = tanhf(x);
    o[5] = powf(fabsf(x), 1.5f);
    o[6] = atan2f(x, 2.0f);
    o[7] = erff(x);
}
