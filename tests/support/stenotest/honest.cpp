// Thirty honest ways to write a matmul: each section is the body of `solution`, after what stands before the first.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
static void rows(const float* A, const float* B, float* C, size_t from, size_t to, size_t N, size_t K) {
  for (size_t i = from; i < to; ++i)
    for (size_t j = 0; j < N; ++j) {
      double s = 0;
      for (size_t k = 0; k < K; ++k) s += (double)A[i * K + k] * B[k * N + j];
      C[i * N + j] = (float)s;
    }
}
struct Pool {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  size_t open = 0;
  Pool() { for (int i = 0; i < 3; ++i) std::thread([this] { serve(); }).detach(); }
  void serve() {
    for (std::unique_lock<std::mutex> lock(mutex);;) {
      changed.wait(lock, [this] { return !work.empty(); });
      auto one = work.front();
      work.pop_front();
      lock.unlock(), one(), lock.lock();
      --open, changed.notify_all();
    }
  }
  void add(std::function<void()> one) { std::lock_guard<std::mutex> lock(mutex); ++open, work.push_back(one), changed.notify_all(); }
  void wait() { std::unique_lock<std::mutex> lock(mutex); changed.wait(lock, [this] { return open == 0; }); }
};
static void parts(const std::function<void(size_t, size_t)>& one, size_t M) { one(0, M / 2), one(M / 2, M); }
static void halves(const float* A, const float* B, float* C, size_t from, size_t to, size_t N, size_t K) {
  if (to - from <= 4) return rows(A, B, C, from, to, N, K);
  halves(A, B, C, from, (from + to) / 2, N, K), halves(A, B, C, (from + to) / 2, to, N, K);
}
extern "C" void solution(const float* A, const float* B, float* C, size_t M, size_t N, size_t K) {
// === plain
rows(A, B, C, 0, M, N, K);
// === threads
std::thread t(rows, A, B, C, 0, M / 2, N, K); rows(A, B, C, M / 2, M, N, K); t.join();
// === many-threads
std::vector<std::thread> all; for (size_t i = 0; i < M; i += 8) all.emplace_back(rows, A, B, C, i, std::min(M, i + 8), N, K); for (auto& one : all) one.join();
// === pool
static Pool pool; for (size_t i = 0; i < M; ++i) pool.add([=] { rows(A, B, C, i, i + 1, N, K); }); pool.wait();
// === pool-on-the-heap
static auto* pool = new Pool; parts([=](size_t from, size_t to) { pool->add([=] { rows(A, B, C, from, to, N, K); }); }, M); pool->wait();
// === async
auto x = std::async(std::launch::async, rows, A, B, C, 0, M / 2, N, K); rows(A, B, C, M / 2, M, N, K); x.get();
// === deferred
auto x = std::async(std::launch::deferred, rows, A, B, C, 0, M, N, K); x.get();
// === spinning-thread
std::atomic<bool> done{false}; std::thread t([&] { rows(A, B, C, 0, M, N, K); done = true; }); while (!done) {} t.join();
// === detached-thread
static std::atomic<size_t> done; done = 0; std::thread([=] { rows(A, B, C, 0, M, N, K); done = 1; }).detach(); while (done == 0) std::this_thread::yield();
// === fork-and-wait
const pid_t child = fork(); if (child == 0) { rows(A, B, C, 0, M / 2, N, K); _exit(0); } rows(A, B, C, M / 2, M, N, K); waitpid(child, nullptr, 0);
// === vfork
if (vfork() == 0) _exit(0); rows(A, B, C, 0, M, N, K);
// === huge-pages
void* p = mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); madvise(p, 8 << 20, MADV_HUGEPAGE); memset(p, 1, 8 << 20); rows(A, B, C, 0, M, N, K); munmap(p, 8 << 20);
// === anonymous-shared-memory
auto* c = (float*)mmap(0, M * N * 4, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); rows(A, B, c, 0, M, N, K); memcpy(C, c, M * N * 4); munmap(c, M * N * 4);
// === lazy-table
static std::vector<double> table = [] { std::vector<double> t(1 << 20); for (size_t i = 0; i < t.size(); ++i) t[i] = std::sin((double)i); return t; }(); rows(A, B, C, 0, M, N, K); if (table[1] > 2) C[0] = 0;
// === table-by-size
static std::map<size_t, std::vector<int>> known; known[M].resize(M * N); rows(A, B, C, 0, M, N, K);
// === scratch
std::vector<float> T(K * N); for (size_t k = 0; k < K; ++k) for (size_t j = 0; j < N; ++j) T[j * K + k] = B[k * N + j]; for (size_t i = 0; i < M; ++i) for (size_t j = 0; j < N; ++j) { double s = 0; for (size_t k = 0; k < K; ++k) s += (double)A[i * K + k] * T[j * K + k]; C[i * N + j] = (float)s; }
// === kept-scratch
static std::vector<float> c; c.resize(M * N); rows(A, B, c.data(), 0, M, N, K); memcpy(C, c.data(), M * N * 4);
// === leaks
malloc(100); rows(A, B, C, 0, M, N, K);
// === stack
char big[4 << 20]; for (size_t i = 0; i < sizeof big; i += 4096) big[i] = 1; asm volatile("" :: "r"(big) : "memory"); rows(A, B, C, 0, M, N, K);
// === recursion
halves(A, B, C, 0, M, N, K);
// === prints
printf("%zu\n", M); fprintf(stderr, "x"); rows(A, B, C, 0, M, N, K);
// === writes-files
FILE* f = fopen("/tmp/notes", "a"); fputs("x", f); fclose(f); rows(A, B, C, 0, M, N, K);
// === reads-the-clock
timespec t; clock_gettime(CLOCK_MONOTONIC, &t); rows(A, B, C, 0, M, N, K);
// === sleeps
usleep(100); rows(A, B, C, 0, M, N, K);
// === vector-unit
typedef double v4 __attribute__((vector_size(32), aligned(4))); for (size_t i = 0; i < M; ++i) for (size_t j = 0; j < N; ++j) { v4 s = {}; size_t k = 0; for (; k + 4 <= K; k += 4) s += v4{A[i * K + k], A[i * K + k + 1], A[i * K + k + 2], A[i * K + k + 3]} * v4{B[k * N + j], B[(k + 1) * N + j], B[(k + 2) * N + j], B[(k + 3) * N + j]}; double r = s[0] + s[1] + s[2] + s[3]; for (; k < K; ++k) r += (double)A[i * K + k] * B[k * N + j]; C[i * N + j] = r; }
// === float-sums
for (size_t i = 0; i < M; ++i) for (size_t j = 0; j < N; ++j) { float s = 0; for (size_t k = 0; k < K; ++k) s += A[i * K + k] * B[k * N + j]; C[i * N + j] = s; }
// === adds-to-its-outputs
memset(C, 0, M * N * 4); for (size_t i = 0; i < M; ++i) for (size_t k = 0; k < K; ++k) for (size_t j = 0; j < N; ++j) C[i * N + j] += A[i * K + k] * B[k * N + j];
// === exceptions
try { throw 1; } catch (int) {} rows(A, B, C, 0, M, N, K);
// === polymorphism
struct Base { virtual ~Base() {} }; std::unique_ptr<Base> one(new Base); rows(A, B, C, 0, M, N, K);
// === timer-signal
alarm(100); rows(A, B, C, 0, M, N, K); alarm(0);
