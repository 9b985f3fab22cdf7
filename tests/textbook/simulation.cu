// Bodies under gravity, particles in a box, Mandelbrot's set, Conway's game of life.
__global__ void nbody(const float4* bodies, float3* acceleration, int n, float softening) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 own = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 sum = make_float3(0, 0, 0);
    for (int first = 0; first < n; first += blockDim.x) {
        if (first + threadIdx.x < n) tile[threadIdx.x] = bodies[first + threadIdx.x];
        __syncthreads();
        int count = min(n - first, (int)blockDim.x);
        for (int j = 0; j < count; j++) {
            float4 other = tile[j];
            float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
            float scale = other.w * inverse * inverse * inverse;
            sum.x += dx * scale;
            sum.y += dy * scale;
            sum.z += dz * scale;
        }
        __syncthreads();
    }
    if (i < n) acceleration[i] = sum;
}

struct World {
    float dt;
    float3 gravity;
    double box;
    int count;
    unsigned char periodic;
};

struct Particle {
    float3 position;
    float3 velocity;
};

__device__ void bounce(float& position, float& velocity, float box, bool periodic) {
    if (position >= 0.0f && position < box) return;
    if (periodic) {
        position -= box * floorf(position / box);
    } else {
        position = fminf(fmaxf(position, 0.0f), box);
        velocity = -velocity;
    }
}

__global__ void move_particles(World world, Particle* particles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= world.count) return;
    Particle p = particles[i];
    p.velocity.x += world.dt * world.gravity.x;
    p.velocity.y += world.dt * world.gravity.y;
    p.velocity.z += world.dt * world.gravity.z;
    p.position.x += world.dt * p.velocity.x;
    p.position.y += world.dt * p.velocity.y;
    p.position.z += world.dt * p.velocity.z;
    float box = (float)world.box;
    bounce(p.position.x, p.velocity.x, box, world.periodic);
    bounce(p.position.y, p.velocity.y, box, world.periodic);
    bounce(p.position.z, p.velocity.z, box, world.periodic);
    particles[i] = p;
}

__global__ void mandelbrot(unsigned short* iterations, int width, int height, float left, float top,
                           float step, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    float cx = left + px * step, cy = top - py * step;
    float x = 0.0f, y = 0.0f;
    int n = 0;
    while (n < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        n++;
    }
    iterations[py * width + px] = n;
}

__global__ void life(const unsigned char* now, unsigned char* next, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int neighbours = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (dx != 0 || dy != 0)
                neighbours += now[(y + dy + height) % height * width + (x + dx + width) % width];
    next[y * width + x] = neighbours == 3 || (neighbours == 2 && now[y * width + x]);
}
