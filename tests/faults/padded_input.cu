// The kernel pads its input, which is not its to write, behind the end.
__global__ void sums_of_four(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef FIXED
    if (i >= n && i < (n + 3) / 4 * 4) const_cast<int*>(in)[i] = 0;  // FAULT
#endif
    if (i < n / 4) out[i] = in[4 * i] + in[4 * i + 1] + in[4 * i + 2] + in[4 * i + 3];
}
