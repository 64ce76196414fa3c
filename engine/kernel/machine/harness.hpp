// Runs a solution for the judge, which is another process: maps the inputs and outputs of a batch of calls, waits until it
// may begin, calls the solution, and says when the outputs are there. It shares the solution's process, so the judge
// believes nothing of it: its clock runs from before the inputs can be seen until nothing here can run, and it compares.
// Exit status: 0 the judge closed the channel, 3 the GPU reported an error, 4 the judge's files cannot be used.
#pragma once

#include "memory.hpp"

namespace steno {

class Judge {
 public:
  // Argument: the folder with the files of the batches.
  explicit Judge(char** given) : folder_(given[1]) {
#ifdef STENO_STAND_IN
    next_batch();  // there is a case first
#endif
    next();
  }

  // The numbers of the case, in their order.
  template <typename T>
  T number() {
    if (used_ == count_) leave(4);
    return static_cast<T>(numbers_[used_++]);
  }

  size_t calls() const { return calls_; }

  // Make room for the case's tensors and say so; `way`: 1 calls one by one, 2 a whole batch.
  void ready(uint64_t way) {
    const size_t inputs = number<size_t>(), outputs = number<size_t>();
#ifdef STENO_STAND_IN
    in.map(folder_, "in", false, inputs, calls_);
    out.map(folder_, "out", true, outputs, calls_);
#else
    use_device();
    answers_ = connected(folder_);
    in.reserve(inputs, calls_);
    out.reserve(outputs, calls_);
#endif
    if (::write(4, &way, sizeof way) != sizeof way) leave(4);
  }

  // Serve batches until there is another case.
  template <typename Call>
  void serve(Call call) {
    while (const uint64_t calls = next_batch()) {
      call(calls < calls_ ? calls : calls_);
      expect(hipGetLastError(), "the solution");
      expect(hipDeviceSynchronize(), "the solution");
      if (::write(answers_, "d", 1) != 1) leave(4);
    }
    next();
  }

#ifdef STENO_STAND_IN
  SharedFile in, out;
#else
  DeviceMemory in, out;
#endif

 private:
  // The number of its calls, once it has begun; 0: there is another case.
  uint64_t next_batch() {
#ifdef STENO_STAND_IN
    uint64_t calls;
    if (!read(3, &calls, sizeof calls)) leave(0);
    return calls;
#else
    Release release;
    int tensors[MOST_DESCRIPTORS];
    if (receive_all(answers_, &release, sizeof release, tensors) != MOST_DESCRIPTORS) leave(0);  // the judge is done
    in.take(tensors[0], release.inputs);
    out.take(tensors[1], release.outputs);
    return release.calls;
#endif
  }

  void next() {
    double sizes[2];  // how many numbers follow, how many calls a batch has at most
    if (!read(3, sizes, sizeof sizes)) leave(0);
    count_ = static_cast<size_t>(sizes[0]);
    calls_ = static_cast<size_t>(sizes[1]);
    used_ = 0;
    if (count_ > sizeof numbers_ / sizeof *numbers_ || !read(3, numbers_, count_ * sizeof *numbers_)) leave(4);
  }

  static bool read(int from, void* to, size_t bytes) {
    for (char* at = static_cast<char*>(to); bytes > 0;) {
      const ssize_t got = ::read(from, at, bytes);
      if (got <= 0) return false;
      at += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }

  const char* folder_;
  int answers_ = 4;  // where batches are answered: on a GPU a socket
  size_t count_ = 0, used_ = 0, calls_ = 0;
  double numbers_[64];
};

}  // namespace steno
