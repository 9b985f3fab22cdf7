// lab  register banks: one loop of FFMAs, whose registers and reuse bits are chosen afterwards.
//
// Idea      The register file has two banks, Rn in bank n mod 2, each with one read a cycle; an
//           operand that .reuse keeps is not read. CUDA C++ cannot choose registers, so this loop is
//           patched in the machine code: operands, reuse, stall and stay of its FFMAs, nothing else.
// Loop      STEPS outer products 8 x 8 from registers, as a GEMM with double-buffered fragments has
//           them: 64 FFMAs each, and no memory instruction.
// Check     All registers are loaded before and stored behind the loop: whatever the patched FFMAs
//           do to whole numbers can be computed from the machine code.
constexpr int THREADS = 256, TM = 8, TN = 8, STEPS = 8;
constexpr int A = 0, B = 2 * TM, SUMS = B + 2 * TN, REGISTERS = SUMS + TM * TN;

// in: REGISTERS x THREADS. out: REGISTERS x THREADS a block.
extern "C" __global__ void __launch_bounds__(THREADS)
    lab_register_banks(const float* __restrict__ in, float* __restrict__ out, int rounds) {
    float r[REGISTERS];
    in += threadIdx.x;
#pragma unroll
    for (int n = 0; n < REGISTERS; ++n)
        r[n] = in[n * THREADS];

#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const float *a = r + A + step % 2 * TM, *b = r + B + step % 2 * TN;
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    r[SUMS + i * TN + j] = __fmaf_rn(a[i], b[j], r[SUMS + i * TN + j]);
        }
    }

    out += static_cast<size_t>(blockIdx.x) * REGISTERS * THREADS + threadIdx.x;
#pragma unroll
    for (int n = 0; n < REGISTERS; ++n)
        out[n * THREADS] = r[n];
}
