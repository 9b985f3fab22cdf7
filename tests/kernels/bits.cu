// Bit tricks, votes, matches, byte dot products, funnel shifts.
__global__ void bits(const unsigned* in, unsigned* out) {
    unsigned v = in[threadIdx.x];
    unsigned r = __popc(v) + __clz(v) + __ffs(v) + __brev(v) + __byte_perm(v, v >> 3, 0x2103);
    r += __funnelshift_l(v, r, 7) + __dp4a(v, r, 5u) + __ballot_sync(0xffffffffu, v & 1);
    r += __match_any_sync(0xffffffffu, v & 7) + __activemask() + __vadd4(v, r) + __usad(v, r, 3u);
    if (__any_sync(0xffffffffu, r > 100)) r = __umulhi(r, v);
    out[threadIdx.x] = r;
}
