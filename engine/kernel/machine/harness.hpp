// Runs a solution for the judge, which is another process: it gets the numbers of a case, then the inputs of one call,
// says when they are in the device's memory, is told to go, and answers with its clock's time and the outputs. It shares
// the solution's process, so the judge believes nothing of this: it compares the outputs and has a clock of its own.
// Exit status: 0 the judge closed the channel, 3 the GPU reported an error, 4 the channel cannot be used.
#pragma once

#include <hip/hip_runtime.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace steno {

inline void expect(hipError_t status, const char* what) {
  if (status == hipSuccess) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::_Exit(3);
}

// Without C++'s vector, which would be a third of what it takes to compile this.
template <size_t TENSORS>
class Case {
 public:
  // Argument: megabytes to write before each call.
  explicit Case(char** given) : flush_(std::strtoull(given[1], nullptr, 10) << 20) {
    if (flush_ > 0) expect(hipMalloc(&cold_, flush_), "memory to flush the caches");
    listen();
  }

  // The judge has sent another case: read its numbers, which are asked for in their order; free the tensors before.
  void next() {
    for (size_t i = 0; i < tensors_; ++i)
      for (void* set : tensor_[i].device) expect(hipFree(set), "the memory of a tensor");
    tensors_ = used_ = 0;
    if (!read(room(asked_[1] * sizeof(double)), asked_[1] * sizeof(double))) std::_Exit(4);
  }

  size_t number() { return parameter<size_t>(); }

  template <typename T>
  T parameter() {
    if (used_ == asked_[1]) std::_Exit(4);
    double number;
    std::memcpy(&number, host_ + used_++ * sizeof number, sizeof number);
    return static_cast<T>(number);
  }

  // Two sets of tensors take turns, so that a pointer does not tell what is in it.
  template <typename T>
  size_t tensor(size_t entries, bool output) {
    Tensor& one = tensor_[tensors_] = {{nullptr, nullptr}, entries * sizeof(T), output};
    for (void*& set : one.device) expect(hipMalloc(&set, one.bytes ? one.bytes : 1), "memory for a tensor");
    return tensors_++;
  }

  template <typename T>
  T* at(size_t tensor) const {
    return static_cast<T*>(tensor_[tensor].device[turn_]);
  }

  // Call the solution as often as asked; returns when there is another case.
  template <typename Call>
  void serve(Call call) {
    for (listen(); asked_[0] != CASE; listen()) {
      if (asked_[0] == CALL) prepare(static_cast<int>(asked_[1]));
      uint64_t word = 1;
      write(&word, sizeof word);
      if (!read(&word, sizeof word)) leave();
      double milliseconds = asked_[0] == CALL ? timed(call) : 0.0;
      char done[16];
      std::memcpy(done, &word, 8);
      std::memcpy(done + 8, &milliseconds, 8);
      write(done, sizeof done);
      if (asked_[0] != CALL) continue;
      for (size_t i = 0; i < tensors_; ++i) {
        const Tensor& one = tensor_[i];
        if (!one.output) continue;
        expect(hipMemcpy(room(one.bytes), one.device[turn_], one.bytes, hipMemcpyDeviceToHost), "copying an output");
        write(host_, one.bytes);
      }
      turn_ ^= 1;
    }
  }

 private:
  struct Tensor {
    void* device[2];
    size_t bytes;
    bool output;
  };

  enum : uint64_t { PING, CALL, CASE };

  void listen() {
    if (!read(asked_, sizeof asked_)) leave();
  }

  [[noreturn]] static void leave() {
    std::fflush(stdout);
    std::fflush(stderr);
    std::_Exit(0);  // whatever the solution registered for the end of the program is not run
  }

  void prepare(int poison) {
    for (size_t i = 0; i < tensors_; ++i) {
      const Tensor& one = tensor_[i];
      if (one.output) {
        expect(hipMemset(one.device[turn_], poison, one.bytes), "filling an output");
        continue;
      }
      if (!read(room(one.bytes), one.bytes)) std::_Exit(4);
      expect(hipMemcpy(one.device[turn_], host_, one.bytes, hipMemcpyHostToDevice), "copying an input");
    }
    if (flush_ > 0) expect(hipMemset(cold_, poison, flush_), "flushing the caches");
    settle();
  }

  template <typename Call>
  double timed(Call call) {
    hipEvent_t from, to;
    expect(hipEventCreate(&from), "an event");
    expect(hipEventCreate(&to), "an event");
    expect(hipEventRecord(from, nullptr), "an event");
    call();
    settle();  // of every stream, before the clock stops
    expect(hipEventRecord(to, nullptr), "an event");
    expect(hipEventSynchronize(to), "the solution");
    float milliseconds = 0.0f;
    expect(hipEventElapsedTime(&milliseconds, from, to), "an event");
    expect(hipEventDestroy(from), "an event");
    expect(hipEventDestroy(to), "an event");
    return milliseconds;
  }

  char* room(size_t bytes) {
    if (bytes > room_) host_ = static_cast<char*>(std::realloc(host_, room_ = bytes));
    if (host_ == nullptr && bytes > 0) {
      std::fprintf(stderr, "the host has no memory for a tensor\n");
      std::abort();
    }
    return host_;
  }

  static void settle() {
    expect(hipGetLastError(), "the solution");
    expect(hipDeviceSynchronize(), "the solution");
  }

  static bool read(void* to, size_t bytes) {
    for (char* at = static_cast<char*>(to); bytes > 0;) {
      const ssize_t got = ::read(3, at, bytes);
      if (got <= 0) return false;
      at += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

  static void write(const void* from, size_t bytes) {
    for (const char* at = static_cast<const char*>(from); bytes > 0;) {
      const ssize_t sent = ::write(4, at, bytes);
      if (sent <= 0) std::_Exit(4);
      at += sent;
      bytes -= static_cast<size_t>(sent);
    }
  }

  size_t flush_;
  void* cold_ = nullptr;
  int turn_ = 0;
  size_t used_ = 0;
  uint64_t asked_[2];  // what to do; of a call the byte that fills its outputs before, of a case how many numbers it has
  size_t tensors_ = 0, room_ = 0;
  char* host_ = nullptr;  // the numbers of a case, then each tensor that comes or goes
  Tensor tensor_[TENSORS];
};

}  // namespace steno
