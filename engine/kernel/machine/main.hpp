// The main program: reads the numbers of each case, and calls the solution on the calls of each batch. What is defined
// before it: STENO_NUMBERS declares the numbers, STENO_ARGUMENTS are those of call `steno_at`, STENO_FUNCTION is the solution.
#include "harness.hpp"

int main(int, char** steno_given) {
  for (steno::Judge steno_judge(steno_given);;) {
    STENO_NUMBERS
    steno_judge.ready(solve_batch == nullptr ? 1 : 2);
    const size_t steno_most = steno_judge.calls();
    steno_call* steno_calls = static_cast<steno_call*>(std::malloc(steno_most * sizeof(steno_call)));
    for (size_t steno_at = 0; steno_at < steno_most; ++steno_at) steno_calls[steno_at] = {STENO_ARGUMENTS};
    steno_judge.serve([&](size_t steno_count) {
      if (solve_batch != nullptr) return solve_batch(steno_calls, steno_count);
      for (size_t steno_at = 0; steno_at < steno_count; ++steno_at) STENO_FUNCTION(STENO_ARGUMENTS);
    });
    std::free(steno_calls);
  }
}
