// Conversions to few bits, packed halves and bfloat16s, functions of halves.
__global__ void narrow(const float* in, unsigned* out) {
    float a = in[threadIdx.x], b = in[threadIdx.x + 32];
    unsigned r = 0, v;
    unsigned short h;
#define FROM_FLOATS(op) asm volatile(op " %0, %1, %2;" : "=r"(v) : "f"(a), "f"(b)); r ^= v
#define TO_BYTES(op) asm volatile(op " %0, %1, %2;" : "=h"(h) : "f"(a), "f"(b)); r ^= h
    FROM_FLOATS("cvt.rn.f16x2.f32");
    FROM_FLOATS("cvt.rz.relu.bf16x2.f32");
    asm volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(v) : "f"(a)); r ^= v;
    asm volatile("cvt.rn.relu.f16.f32 %0, %1;" : "=h"(h) : "f"(a)); r ^= h;
#if __CUDA_ARCH__ >= 890
    TO_BYTES("cvt.rn.satfinite.e4m3x2.f32");
    TO_BYTES("cvt.rn.satfinite.relu.e5m2x2.f32");
    asm volatile("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(h) : "r"(r)); r ^= h;
    asm volatile("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(v) : "h"(h)); r ^= v;
#endif
#if __CUDA_ARCH_FEAT_SM100_ALL || __CUDA_ARCH_FEAT_SM120_ALL || __CUDA_ARCH_FEAT_SM103_ALL
    TO_BYTES("cvt.rn.satfinite.e2m3x2.f32");
    TO_BYTES("cvt.rn.satfinite.relu.e3m2x2.f32");
    TO_BYTES("cvt.rz.satfinite.ue8m0x2.f32");
    asm volatile("{.reg .b8 x; cvt.rn.satfinite.e2m1x2.f32 x, %1, %2; cvt.rn.f16x2.e2m1x2 %0, x;}"
                 : "=r"(v) : "f"(a), "f"(b)); r ^= v;
    asm volatile("cvt.rn.f16x2.e3m2x2 %0, %1;" : "=r"(v) : "h"(h)); r ^= v;
    asm volatile("cvt.rn.bf16x2.ue8m0x2 %0, %1;" : "=r"(v) : "h"(h)); r ^= v;
#endif
    out[threadIdx.x] = r;
}
__global__ void halves(const unsigned* in, unsigned* out) {
    unsigned a = in[threadIdx.x], b = in[threadIdx.x + 32], c = in[threadIdx.x + 64], r = 0, v;
    [[maybe_unused]] unsigned short s = a, u = b;
#define UNARY(op) asm volatile(op " %0, %1;" : "=r"(v) : "r"(a)); r ^= v
#define BINARY(op) asm volatile(op " %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b)); r ^= v
#define TERNARY(op) asm volatile(op " %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v
    TERNARY("fma.rn.f16x2");
    TERNARY("fma.rn.relu.f16x2");
    TERNARY("fma.rn.bf16x2");
    BINARY("add.f16x2");
    BINARY("mul.ftz.f16x2");
    BINARY("max.NaN.bf16x2");
    BINARY("set.lt.f16x2.f16x2");
    UNARY("tanh.approx.f16x2");
    UNARY("ex2.approx.f16x2");
    UNARY("neg.bf16x2");
    UNARY("abs.f16x2");
    asm volatile("{.reg .pred p, q; setp.gtu.and.f16x2 p|q, %1, %2, p; selp.u32 %0, 1, 0, q;}" : "=r"(v) : "r"(a), "r"(b)); r ^= v + u;
#if __CUDA_ARCH__ >= 860
    BINARY("min.xorsign.abs.f16x2");
    asm volatile("{.reg .f32 x, y; mov.b32 x, %1; mov.b32 y, %2; max.xorsign.abs.f32 x, x, y; mov.b32 %0, x;}" : "=r"(v) : "r"(a), "r"(b)); r ^= v;
#endif
#if __CUDA_ARCH__ >= 900
    asm volatile("tanh.approx.bf16 %0, %1;" : "=h"(u) : "h"(s));
#endif
    asm volatile("tanh.approx.f32 %0, %1;" : "=r"(v) : "f"(__uint_as_float(a))); r ^= v;
    asm volatile("copysign.f32 %0, %1, %2;" : "=r"(v) : "f"(__uint_as_float(a)), "f"(__uint_as_float(b))); r ^= v;
#if __CUDA_ARCH__ >= 1000
    float f = __uint_as_float(a), g = __uint_as_float(b);
    unsigned long long two = a * 5ull, three = b * 7ull;
    asm volatile("fma.rn.f32x2 %0, %0, %1, %1;" : "+l"(two) : "l"(three));
    asm volatile("add.rn.f32x2 %0, %0, %1;" : "+l"(two) : "l"(three));
    asm volatile("mul.rn.f32x2 %0, %0, %1;" : "+l"(two) : "l"(three));
    asm volatile("max.f32 %0, %1, %2, %3;" : "=r"(v) : "f"(f), "f"(g), "f"(f + g)); r ^= v + (unsigned)two;
#endif
    out[threadIdx.x] = r;
}
__global__ void wide(unsigned long long* x, double* d, float* f) {
    unsigned long long a = x[threadIdx.x], b = x[threadIdx.x + 32];
    x[threadIdx.x] = (a < b ? a * b : a >> (b & 63)) + __umul64hi(a, b) + __popcll(a) + __clzll(b) + __brevll(a);
    d[threadIdx.x] = fma(d[0], d[1], (double)(long long)a) + (double)f[0] + floor(d[2]) + fmin(d[3], rsqrt(d[4]));
    f[threadIdx.x] = (float)d[5] + (float)a + (float)(unsigned char)b + roundf(f[2]) + (float)(long long)f[3];
    x[1] = (unsigned long long)f[5] + (long long)d[7] + (int)d[8] + (unsigned char)f[9];
}
