// Integers of 64 bits, random numbers, bit tricks, checksums, packed bytes.
typedef unsigned long long u64;

__global__ void mark_multiples(const unsigned* primes, int count, u64 first, int length,
                               unsigned char* composite) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 prime = primes[i];
    u64 start = (first + prime - 1) / prime * prime;
    for (u64 multiple = start; multiple < first + length; multiple += prime)
        composite[multiple - first] = 1;
}

__global__ void divisions(const long long* a, const long long* b, long long* quotient,
                          long long* remainder, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        quotient[i] = a[i] / b[i];
        remainder[i] = a[i] % b[i];
    }
}

__global__ void narrow_divisions(const int* a, const int* b, const unsigned char* c, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] / b[i] + a[i] % b[i] * 7 + (unsigned)a[i] / 10 + c[i] % 11;
}

__global__ void monte_carlo(u64* hits, int samples) {
    unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u;
    unsigned inside = 0;
    for (int s = 0; s < samples; ++s) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        u64 x = state & 0xffff, y = state >> 16;
        if (x * x + y * y < 1ull << 32) inside++;
    }
    for (int offset = 16; offset > 0; offset /= 2)
        inside += __shfl_down_sync(0xffffffff, inside, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(hits, (u64)inside);
}

// Each thread skips to its own place in one sequence, by squaring the generator's step.
__global__ void lcg(u64 seed, u64 bound, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 multiplier = 6364136223846793005ull, increment = 1442695040888963407ull;
    u64 a = 1, c = 0;
    for (unsigned steps = i + 1; steps > 0; steps >>= 1) {
        if (steps & 1) {
            a *= multiplier;
            c = c * multiplier + increment;
        }
        increment *= multiplier + 1;
        multiplier *= multiplier;
    }
    out[i] = __umul64hi(a * seed + c, bound);
}

__global__ void bit_tricks(const unsigned* in, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = in[i], w = in[n - 1 - i];
    unsigned* o = out + 10 * i;
    o[0] = __funnelshift_l(v, w, i & 31);
    o[1] = __funnelshift_r(v, w, i & 31);
    o[2] = __brev(v);
    o[3] = __clz(v);
    o[4] = __ffs(v);
    o[5] = __popc(v & w);
    o[6] = __byte_perm(v, w, 0x6240);
    o[7] = (v << (i & 31)) | (v >> ((32 - i) & 31));
    unsigned gray = v ^ (v >> 1);
    for (int s = 16; s > 0; s >>= 1) gray ^= gray >> s;
    o[8] = gray;
    unsigned spread = v & 0xffff;
    spread = (spread | spread << 8) & 0x00ff00ff;
    spread = (spread | spread << 4) & 0x0f0f0f0f;
    spread = (spread | spread << 2) & 0x33333333;
    spread = (spread | spread << 1) & 0x55555555;
    o[9] = spread;
}

__global__ void crc32(const unsigned char* text, const int* offsets, unsigned* out, int messages) {
    __shared__ unsigned table[256];
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x) {
        unsigned value = b;
        for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        table[b] = value;
    }
    __syncthreads();
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= messages) return;
    unsigned crc = ~0u;
    for (int i = offsets[m]; i < offsets[m + 1]; ++i)
        crc = table[(crc ^ text[i]) & 0xff] ^ crc >> 8;
    out[m] = ~crc;
}

__global__ void dot_bytes(const int* a, const int* b, int* c, int rows, int columns, int quads) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    int sum = 0;
    for (int q = 0; q < quads; ++q) sum = __dp4a(a[row * quads + q], b[column * quads + q], sum);
    c[row * columns + column] = sum;
}

__global__ void quantise(const float* in, signed char* out, float* back, float scale, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int q = __float2int_rn(in[i] / scale);
    q = max(-128, min(127, q));
    out[i] = (signed char)q;
    back[i] = q * scale;
}
