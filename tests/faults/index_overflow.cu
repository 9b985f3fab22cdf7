// The element's number does not fit 32 bits from row 2^31 / ld on.
__global__ void scale_rows(float* matrix, int first_row, int ld) {
    int row = first_row + blockIdx.x;
#ifdef FIXED
    long long i = (long long)row * ld + threadIdx.x;
#else
    int i = row * ld + threadIdx.x;
#endif
    matrix[i] *= 2.0f;  // FAULT
}
