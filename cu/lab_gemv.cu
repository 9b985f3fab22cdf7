// lab  GEMV: y = A x, a thread, a warp or a block to a row.
//
// Idea      Each element of A is used once: nothing but the rate at which A comes from DRAM counts.
//           That rate takes bytes in flight: latency times bandwidth, 13 KB per SM on an H200. How
//           many there are follows from the resident threads and from the loads that a thread issues
//           before it uses the first. x is read again for every row, but from L1 and L2: DRAM gives
//           it once.
// Variants  TEAM       threads that share a row: 1, a warp, a block of 256.
//           ROWS       rows that a team computes at once; a piece of x then serves all of them.
//           WIDTH      floats in a load: 1 or 4.
//           DEPTH      loads of a row in flight in each thread.
//           PAST_L1    A takes no place in L1, which keeps x.
//           USES_X     false: the sum of each row instead, to see what reading A alone takes.
// Sizes     M a multiple of the rows of a block, K of TEAM x WIDTH x DEPTH; aligned rows.
// Order     The sum's order is fixed by the variant: shuffles and shared memory, no atomics.
// Check     Small whole numbers: every sum is exact in FP32.
template <int WIDTH>
struct Piece {
    float v[WIDTH];
};

template <int WIDTH, bool PAST_L1>
__device__ __forceinline__ Piece<WIDTH> load(const float* __restrict__ from) {
    Piece<WIDTH> piece;
    if constexpr (WIDTH == 4 && PAST_L1) {
        asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
            : "=f"(piece.v[0]), "=f"(piece.v[1]), "=f"(piece.v[2]), "=f"(piece.v[3])
            : "l"(from));
    } else if constexpr (WIDTH == 4) {
        const float4 four = __ldg(reinterpret_cast<const float4*>(from));
        piece = {four.x, four.y, four.z, four.w};
    } else {
        piece = {__ldg(from)};
    }
    return piece;
}

// 1024 threads per SM are all that is asked for: with the default the compiler saves registers and
// waits for the first loads before it issues the last.
template <int TEAM>
struct Block {
    static constexpr int THREADS = TEAM == 1 ? 128 : 256, PER_SM = 1024 / THREADS;
};

template <int TEAM, int ROWS, int WIDTH, int DEPTH, bool PAST_L1, bool USES_X>
__global__ void __launch_bounds__(Block<TEAM>::THREADS, Block<TEAM>::PER_SM)
    lab_gemv(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y,
             int K) {
    constexpr int TEAMS = Block<TEAM>::THREADS / TEAM, STRIDE = TEAM * WIDTH;
    const int lane = threadIdx.x % TEAM;
    const int row = (blockIdx.x * TEAMS + threadIdx.x / TEAM) * ROWS;
    const float* a = A + static_cast<size_t>(row) * K + lane * WIDTH;
    x += lane * WIDTH;
    float sum[ROWS] = {};

#pragma unroll 1
    for (int k = 0; k < K; k += STRIDE * DEPTH) {
        // ---- load: everything of this step before any of it is used
        Piece<WIDTH> of_a[ROWS][DEPTH], of_x[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                of_a[r][i] = load<WIDTH, PAST_L1>(a + static_cast<size_t>(r) * K + i * STRIDE);
        }
        if constexpr (USES_X) {
#pragma unroll
            for (int i = 0; i < DEPTH; ++i)
                of_x[i] = load<WIDTH, false>(x + i * STRIDE);
        }

        // ---- compute
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
#pragma unroll
                for (int j = 0; j < WIDTH; ++j)
                    sum[r] += USES_X ? of_a[r][i].v[j] * of_x[i].v[j] : of_a[r][i].v[j];
            }
        }
        a += STRIDE * DEPTH;
        x += STRIDE * DEPTH;
    }

    // ---- store: the team's sums to one
    if constexpr (TEAM > 1) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int other = 16; other > 0; other /= 2)
                sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], other);
        }
    }
    if constexpr (TEAM > 32) {
        constexpr int WARPS = TEAM / 32;
        __shared__ float of_warp[ROWS][WARPS];
        if (lane % 32 == 0) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                of_warp[r][lane / 32] = sum[r];
        }
        __syncthreads();
        if (lane < ROWS) {
            float total = 0.0f;
#pragma unroll
            for (int warp = 0; warp < WARPS; ++warp)
                total += of_warp[lane][warp];
            y[row + lane] = total;
        }
    } else if (lane == 0) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
            y[row + r] = sum[r];
    }
}
