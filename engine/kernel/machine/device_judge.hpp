// The judge's own process on the GPU, in a place without a solution. It makes the memory of the tensors, gives it to a
// solution's process when the clock begins, and at the byte that says done gathers entries of the outputs at places that
// it draws in that moment: the clock ends when it has them. A solution's device code is not stopped by then; what it
// still writes differs from what was gathered.
// Argument: the folder with the files of the batches. A byte on descriptor 3 begins, one on 4 says that the GPU is there.
// Exit status: as of the harness.
#pragma once

#include <poll.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "memory.hpp"

namespace steno {

constexpr uint64_t PLACES = 65536;  // gathered of each batch, or all entries where there are fewer
constexpr uint64_t MOST_TENSORS = 4, MOST_CALLS = 1024;  // of outputs; of a batch

// As device.py sends it. Without calls: the solution was ended, compare.
struct Order {
  uint64_t calls, inputs, outputs;  // the latter: bytes of a call
  uint64_t size, limit;             // bytes of an entry; milliseconds
  uint64_t tensors;
  struct {
    uint64_t at, entries;
  } tensor[MOST_TENSORS];
};

struct Key {
  uint64_t first, second;
};

__host__ __device__ inline uint64_t mixed(uint64_t x) {  // splitmix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// `each` places of every output of every call: all of its entries, if it has no more.
__global__ void gather(const char* out, Order order, Key key, uint64_t each, uint64_t count, uint64_t* places,
                       uint64_t* values) {
  const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint64_t part = i / each, call = part / order.tensors, which = part % order.tensors;
  const uint64_t entries = order.tensor[which].entries;
  const uint64_t drawn = entries > each ? mixed(mixed(key.first + i * 0x9e3779b97f4a7c15u) ^ key.second) : i % each;
  const uint64_t place = call * order.outputs + order.tensor[which].at + drawn % entries * order.size;
  places[i] = place;
  if (order.size == 8) values[i] = *reinterpret_cast<const uint64_t*>(out + place);
  if (order.size == 4) values[i] = *reinterpret_cast<const uint32_t*>(out + place);
  if (order.size == 2) values[i] = *reinterpret_cast<const uint16_t*>(out + place);
}

class DeviceJudge {
 public:
  explicit DeviceJudge(const char* folder) : folder_(folder), judge_(connected(folder)) {
    use_device();
    zero();
    constexpr size_t room = (PLACES + MOST_CALLS * MOST_TENSORS) * sizeof(uint64_t);
    expect(hipMalloc(&places_, room), "memory of the judge");
    expect(hipMalloc(&values_, room), "memory of the judge");
    if (write(4, ".", 1) != 1) leave(4);
  }

  [[noreturn]] void serve() {
    for (Order order;;) {
      int solution[MOST_DESCRIPTORS] = {-1, -1};
      if (receive_all(judge_, &order, sizeof order, solution) < 0) leave(0);
      if (order.calls == 0) {
        compare();
      } else {
        time(order, solution[0]);
        close(solution[0]);
      }
    }
  }

 private:
  // All memory that nobody has: no program finds what one before it left. What is the host's is zeroed by its kernel.
  static void zero() {
    int integrated = 0;
    expect(hipDeviceGetAttribute(&integrated, hipDeviceAttributeIntegrated, 0), "the GPU");
    size_t left = 0, total = 0;
    expect(hipMemGetInfo(&left, &total), "the GPU's memory");
    if (integrated != 0) return;
    std::vector<void*> pieces;
    for (size_t piece = size_t{1} << 30; piece >= size_t{1} << 21;) {
      void* found = nullptr;
      if (piece <= left && hipMalloc(&found, piece) == hipSuccess) {
        expect(hipMemset(found, 0, piece), "the GPU's memory");
        pieces.push_back(found);
        left -= piece;
      } else {
        (void)hipGetLastError();
        piece /= 2;
      }
    }
    expect(hipDeviceSynchronize(), "the GPU's memory");
    for (void* one : pieces) expect(hipFree(one), "the GPU's memory");
  }

  void time(const Order& order, int solution) {
    order_ = order;
    in_.reserve(order.inputs, order.calls);
    out_.reserve(order.outputs, order.calls);
    in_.make();
    out_.make();
    SharedFile given;
    given.map(folder_, "in", false, order.inputs, order.calls);
    in_pieces(order.inputs * order.calls, [&](char* piece, size_t at, size_t size) {
      std::memcpy(piece, given.at(0, at), size);
      expect(hipMemcpy(in_.at(0, at), piece, size, hipMemcpyHostToDevice), "the inputs");
    });
    given.unmap();
    expect(hipMemset(out_.at(0, 0), 0xff, out_.bytes()), "the outputs");
    gather();  // loads its code
    Release release{order.calls, in_.bytes(), out_.bytes()};
    const int shared[] = {in_.share(), out_.share()};
    int64_t times[] = {now(), 0, 0};  // nanoseconds: began; a message came, if any; gathered
    pollfd waits{solution, POLLIN, 0};
    char done;  // descriptors that come with it are dropped
    if (send_all(solution, &release, sizeof release, shared, 2) && poll(&waits, 1, static_cast<int>(order.limit)) == 1 &&
        recv(solution, &done, 1, MSG_DONTWAIT) == 1)
      times[1] = now();
    gather();
    times[2] = now();
    for (int one : shared) close(one);
    answer(times, sizeof times);
  }

  // By way of plain memory: a driver need not pin a file that is mapped.
  template <typename Copy>
  static void in_pieces(size_t bytes, Copy copy) {
    std::vector<char> piece(size_t{1} << 24);
    for (size_t at = 0; at < bytes; at += piece.size()) copy(piece.data(), at, std::min(piece.size(), bytes - at));
  }

  void gather() {
    Key key;
    if (getrandom(&key, sizeof key, 0) != sizeof key) leave(4);
    const uint64_t parts = order_.calls * order_.tensors, each = (PLACES + parts - 1) / parts;
    count_ = parts * each;
    hipLaunchKernelGGL(steno::gather, dim3(static_cast<unsigned>((count_ + 255) / 256)), dim3(256), 0, 0, out_.at(0, 0),
                       order_, key, each, count_, places_, values_);
    expect(hipGetLastError(), "gathering");
    expect(hipDeviceSynchronize(), "gathering");
  }

  // Write the outputs to their file, and answer how many of the entries that were gathered have changed since.
  void compare() {
    SharedFile taken;
    taken.map(folder_, "out", true, order_.outputs, order_.calls);
    in_pieces(order_.outputs * order_.calls, [&](char* piece, size_t at, size_t size) {
      expect(hipMemcpy(piece, out_.at(0, at), size, hipMemcpyDeviceToHost), "the outputs");
      std::memcpy(taken.at(0, at), piece, size);
    });
    std::vector<uint64_t> places(count_), values(count_);
    const size_t size = count_ * sizeof(uint64_t);
    expect(hipMemcpy(places.data(), places_, size, hipMemcpyDeviceToHost), "the outputs");
    expect(hipMemcpy(values.data(), values_, size, hipMemcpyDeviceToHost), "the outputs");
    int64_t changed = 0;
    for (uint64_t i = 0; i < count_; ++i)
      changed += std::memcmp(taken.at(0, places[i]), &values[i], order_.size) != 0;
    taken.unmap();
    in_.give_back();
    out_.give_back();
    answer(&changed, sizeof changed);
  }

  void answer(const void* said, size_t size) const {
    if (send(judge_, said, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) leave(0);
  }

  static int64_t now() {
    timespec found;
    clock_gettime(CLOCK_MONOTONIC, &found);
    return found.tv_sec * INT64_C(1000000000) + found.tv_nsec;
  }

  const char* folder_;
  int judge_;
  Order order_{};
  DeviceMemory in_, out_;
  uint64_t *places_ = nullptr, *values_ = nullptr, count_ = 0;
};

}  // namespace steno

int main(int, char** given) {
  char begin;
  if (read(3, &begin, 1) != 1) steno::leave(0);
  steno::DeviceJudge(given[1]).serve();
}
