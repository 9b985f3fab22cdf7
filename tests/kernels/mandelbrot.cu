// A loop that ends at run time, with a break in the middle.
__global__ void mandelbrot(unsigned char* out, int width, float scale, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y;
    if (px >= width) return;
    float cx = px * scale - 2.0f, cy = py * scale - 1.5f, x = 0, y = 0;
    int i = 0;
    for (; i < limit; ++i) {
        float xx = x * x, yy = y * y;
        if (xx + yy > 4.0f) break;
        y = 2 * x * y + cy;
        x = xx - yy + cx;
    }
    out[py * width + px] = (unsigned char)i;
}
