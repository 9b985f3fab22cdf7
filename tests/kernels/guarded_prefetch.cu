// A GEMM as many are written: the next tile is loaded under guards into registers while this one is
// computed, and stored to the other buffer behind it. M, N any; K a multiple of 8.
__device__ __forceinline__ void load_if(float& value, const float* from, bool guard) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.f32 %0, [%1]; }"
                 : "+f"(value)
                 : "l"(from), "r"(int(guard)));
}

extern "C" __global__ void __launch_bounds__(256, 2)
    guarded_prefetch(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ __align__(16) float As[2][8][132], Bs[2][8][128];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int row = warp / 2 * 32 + lane / 8 * 4, col = warp % 2 * 64 + lane % 8 * 4;
    const int m0 = blockIdx.y * 128, n0 = blockIdx.x * 128;
    const float* from_a = A + (m0 + t / 8 * 4) * K + t % 8;
    const float* from_b = B + t / 32 * N + n0 + t % 32;
    float next_a[4] = {}, next_b[4] = {}, a[2][8], b[2][8], acc[8][8] = {};
    auto load = [&] {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_if(next_a[i], from_a + i * K, m0 + t / 8 * 4 + i < M);
            load_if(next_b[i], from_b + i * 32, n0 + t % 32 + i * 32 < N);
        }
    };
    auto store = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            As[buffer][t % 8][t / 8 * 4 + i] = next_a[i];
            Bs[buffer][t / 32][t % 32 + i * 32] = next_b[i];
        }
    };
    auto read = [&](int into, int buffer, int k) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            a[into][i] = As[buffer][k][row + i / 4 * 16 + i % 4];
            b[into][i] = Bs[buffer][k][col + i / 4 * 32 + i % 4];
        }
    };
    load();
    store(0);
    __syncthreads();
    read(0, 0, 0);
    int buffer = 0;
#pragma unroll 1
    for (int tiles = K / 8; tiles > 0; --tiles) {
        const bool more = tiles > 1;
        from_a += more ? 8 : 0, from_b += more ? 8 * N : 0;
        load();
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (k < 7) read((k + 1) % 2, buffer, k + 1);
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    acc[i][j] += a[k % 2][i] * b[k % 2][j];
        }
        buffer ^= 1;
        store(buffer);
        __syncthreads();
        read(0, buffer, 0);
    }
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) {
            const int r = m0 + row + i / 4 * 16 + i % 4, c = n0 + col + j / 4 * 32 + j % 4;
            if (r < M && c < N) C[r * N + c] = acc[i][j];
        }
}
