// Tensor-core products of a warp: every type, sparse ones, matrices to and from shared memory.
#define FLOATS "{%0, %1, %2, %3}"
#define MMA(op, a, b, more)                                                                        \
    asm volatile(op " " FLOATS ", " a ", " b ", " FLOATS more ";"                                  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]))
#define A1 "{%4}"
#define A2 "{%4, %5}"
#define A4 "{%4, %5, %6, %7}"
#define B1 "{%8}"
#define B2 "{%8, %9}"
#define B4 "{%8, %9, %10, %11}"
__global__ void products(const unsigned* in, float* out) {
    unsigned x[8];
    float d[4] = {};
    for (int i = 0; i < 8; ++i) x[i] = in[i * 32 + threadIdx.x];
    MMA("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", A2, B1, "");
    MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", A4, B2, "");
    MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", A4, B2, "");
    MMA("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", A2, B2, ", %10, 0x1");
    MMA("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", A4, B4, ", %10, 0x0");
    int* i = (int*)d;
#define INTEGER(op, a, b, more)                                                                    \
    asm volatile(op " " FLOATS ", " a ", " b ", " FLOATS more ";"                                  \
                 : "+r"(i[0]), "+r"(i[1]), "+r"(i[2]), "+r"(i[3])                                  \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]))
    INTEGER("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", A4, B2, "");
    INTEGER("mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32", A4, B2, "");
    INTEGER("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", A4, B2, "");
    INTEGER("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", A4, B4, ", %10, 0x0");
#if __CUDA_ARCH__ >= 890
    MMA("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", A4, B2, "");
    MMA("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", A4, B4, ", %10, 0x0");
#endif
#if __CUDA_ARCH_FEAT_SM120_ALL || __CUDA_ARCH_FEAT_SM121_ALL
    MMA("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", A4, B2, "");
    MMA("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e2m3.f32.ue8m0", A4, B2, ", %10, {0, 0}, %11, {0, 0}");
    MMA("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", A4, B2, ", %10, {0, 0}, %11, {0, 0}");
    MMA("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32", A4, B4, ", %10, 0x0");
#endif
    for (int n = 0; n < 4; ++n) out[n * 32 + threadIdx.x] = d[n];
}
__global__ void doubles_product(const double* in, double* out) {
    double c = in[64 + threadIdx.x], e = c;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c), "+d"(e) : "d"(in[threadIdx.x]), "d"(in[threadIdx.x + 32]));
    out[threadIdx.x] = c + e;
}
__global__ void matrices(unsigned* out) {
    __shared__ uint4 tile[64];
    unsigned s = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]), a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(s));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(s + a));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(c) : "r"(a));
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(s));
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%1], {%0};" ::"r"(a), "r"(s + b));
#endif
#if __CUDA_ARCH_FEAT_SM100_ALL || __CUDA_ARCH_FEAT_SM103_ALL || __CUDA_ARCH_FEAT_SM120_ALL
    asm volatile("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(s));
    asm volatile("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%0}, [%1];" : "=r"(c) : "r"(s));
    asm volatile("stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%2], {%0, %1};" ::"r"(a), "r"(b), "r"(s));
#endif
    out[threadIdx.x] = a + b + c + d;
}
