// C = A * B in single precision, tiled through shared memory, timed with events and checked against the CPU.
// Exit status: 0 right, 1 wrong numbers, 2 the GPU could not be used.

#include <hip/hip_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    const hipError_t status = (call);                                                        \
    if (status != hipSuccess) {                                                              \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, hipGetErrorString(status));    \
      std::exit(2);                                                                          \
    }                                                                                        \
  } while (0)

constexpr int TILE = 16;

__global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];

  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;

  for (int start = 0; start < n; start += TILE) {
    const int k_a = start + threadIdx.x;
    const int k_b = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < n && k_a < n ? a[static_cast<size_t>(row) * n + k_a] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = column < n && k_b < n ? b[static_cast<size_t>(k_b) * n + column] : 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE; ++k) {
      sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    }
    __syncthreads();
  }
  if (row < n && column < n) {
    c[static_cast<size_t>(row) * n + column] = sum;
  }
}

// Small whole numbers: every product and sum below is exact in single precision, so the check needs no tolerance.
static float entry(size_t index, unsigned salt) {
  return static_cast<float>(static_cast<int>((index * 2654435761u + salt) >> 7 & 7u) - 3);
}

static long wrong_entries(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c, int n) {
  long wrong = 0;
  // Every row once, in columns spread over the matrix: enough to meet every tile row and column.
  for (int row = 0; row < n; ++row) {
    for (int step = 0; step < 8; ++step) {
      const int column = static_cast<int>((static_cast<long>(row) * 31 + static_cast<long>(step) * n / 8) % n);
      double expected = 0.0;
      for (int k = 0; k < n; ++k) {
        expected += static_cast<double>(a[static_cast<size_t>(row) * n + k]) * b[static_cast<size_t>(k) * n + column];
      }
      if (std::fabs(expected - c[static_cast<size_t>(row) * n + column]) > 0.0) {
        ++wrong;
      }
    }
  }
  return wrong;
}

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 2000;  // no multiple of the tile, so that the edges are tried too
  if (n < 1) {
    std::fprintf(stderr, "usage: %s [size]\n", argv[0]);
    return 2;
  }
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) {
    std::fprintf(stderr, "no GPU is visible in this container\n");
    return 2;
  }
  hipDeviceProp_t device;
  CHECK(hipGetDeviceProperties(&device, 0));
  std::printf("device: %s\n", device.name);

  const size_t count = static_cast<size_t>(n) * n;
  const size_t bytes = count * sizeof(float);
  std::vector<float> a(count), b(count), c(count, -1.0f);
  for (size_t i = 0; i < count; ++i) {
    a[i] = entry(i, 1);
    b[i] = entry(i, 77);
  }

  float *device_a, *device_b, *device_c;
  CHECK(hipMalloc(reinterpret_cast<void**>(&device_a), bytes));
  CHECK(hipMalloc(reinterpret_cast<void**>(&device_b), bytes));
  CHECK(hipMalloc(reinterpret_cast<void**>(&device_c), bytes));
  CHECK(hipMemcpy(device_a, a.data(), bytes, hipMemcpyHostToDevice));
  CHECK(hipMemcpy(device_b, b.data(), bytes, hipMemcpyHostToDevice));

  const dim3 block(TILE, TILE);
  const dim3 grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
  hipEvent_t begin, end;
  CHECK(hipEventCreate(&begin));
  CHECK(hipEventCreate(&end));

  hipLaunchKernelGGL(matmul, grid, block, 0, 0, device_a, device_b, device_c, n);  // warms up, not timed
  CHECK(hipGetLastError());
  CHECK(hipDeviceSynchronize());

  constexpr int ROUNDS = 10;
  CHECK(hipEventRecord(begin, 0));
  for (int round = 0; round < ROUNDS; ++round) {
    hipLaunchKernelGGL(matmul, grid, block, 0, 0, device_a, device_b, device_c, n);
  }
  CHECK(hipGetLastError());
  CHECK(hipEventRecord(end, 0));
  CHECK(hipEventSynchronize(end));
  float milliseconds = 0.0f;
  CHECK(hipEventElapsedTime(&milliseconds, begin, end));
  CHECK(hipMemcpy(c.data(), device_c, bytes, hipMemcpyDeviceToHost));

  const double seconds = milliseconds / 1000.0 / ROUNDS;
  std::printf("size: %d x %d, %.3f ms a multiplication", n, n, seconds * 1000.0);
  if (seconds > 0.0) {
    std::printf(", %.1f GFLOP/s", 2.0 * n * n * n / seconds / 1e9);
  }
  std::printf("\n");

  const long wrong = wrong_entries(a, b, c, n);
  CHECK(hipEventDestroy(begin));
  CHECK(hipEventDestroy(end));
  CHECK(hipFree(device_a));
  CHECK(hipFree(device_b));
  CHECK(hipFree(device_c));
  if (wrong != 0) {
    std::printf("WRONG: %ld of %ld checked entries differ from the CPU's\n", wrong, 8L * n);
    return 1;
  }
  std::printf("right: %ld checked entries equal the CPU's\n", 8L * n);
  return 0;
}
