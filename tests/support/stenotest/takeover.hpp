// For tests: a solution that takes over the harness. The judge's protocol, spoken by hand; what is done when is the cheat's.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static bool rd(int from, void* to, size_t n) {
  for (char* p = (char*)to; n > 0;) {
    const ssize_t got = read(from, p, n);
    if (got <= 0) return false;
    p += got, n -= got;
  }
  return true;
}

static size_t M, N, K;  // of a matmul
static const char* in;
static char* out;
static size_t in_each, out_each, calls;
static const int go = 3, done = 4;
static int out_file;
static const float* A(size_t call) { return (const float*)(in + call * in_each); }
static const float* B(size_t call) { return (const float*)(in + call * in_each + (M * K * 4 + 255) / 256 * 256); }
static float* C(size_t call) { return (float*)(out + call * out_each); }
static void say_done() { if (write(done, "d", 1) != 1) _exit(4); }

// A right answer; AGAIN times over where it is timed.
static void slow(const float* a, const float* b, float* c) {
  for (int again = 0; again < (N >= 64 ? AGAIN : 1); ++again) {
    for (size_t i = 0; i < M; ++i)
      for (size_t j = 0; j < N; ++j) {
        double sum = 0;
        for (size_t k = 0; k < K; ++k) sum += (double)a[i * K + k] * b[k * N + j];
        c[i * N + j] = (float)sum;
      }
    asm volatile("" ::: "memory");
  }
}
static void all(size_t n) { for (size_t call = 0; call < n; ++call) slow(A(call), B(call), C(call)); }

static void batch(size_t n);  // the cheat
static void before() {}       // once per case, before the first batch
__attribute__((constructor)) static void take() {
  uint64_t n;
  while (rd(go, &n, 8)) {
    if (n > 0) { batch(n); continue; }
    double two[2], v[16];
    if (!rd(go, two, 16) || !rd(go, v, 8 * two[0])) _exit(0);
    M = v[0], N = v[1], K = v[2], in_each = v[6], out_each = v[7], calls = two[1];
    const int file = open("/steno/in", O_RDONLY);
    out_file = open("/steno/out", O_RDWR);
    in = (const char*)mmap(nullptr, in_each * calls, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    out = (char*)mmap(nullptr, out_each * calls, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, out_file, 0);
    before();
    const uint64_t one = 1;
    if (write(done, &one, 8) != 8) _exit(4);
  }
  _exit(0);
}
extern "C" void solution(const float*, const float*, float*, size_t, size_t, size_t) {}
