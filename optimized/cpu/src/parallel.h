// Work on the threads of PyTorch: its own pool, its own number of threads.
//
// The pool is reached through a function pointer (`torch_parallel_for` of PyTorch's stable C
// interface), so that this library needs neither PyTorch's headers nor a second thread runtime.
#pragma once

#include <cfenv>
#include <cstdint>

namespace nibblespec {

using Body = void (*)(int64_t begin, int64_t end, void* context);
using ParallelFor = int32_t (*)(int64_t begin, int64_t end, int64_t grain, Body body,
                                void* context);

inline ParallelFor parallel_for = nullptr;  // none: everything runs on the calling thread

// Rounding to nearest even, subnormals kept, whatever the thread was set to; then as before.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

// Call body(begin, end) for parts of 0 … count, none shorter than `grain` but the last. No result
// may depend on how the range is cut.
template <class F>
void parallel(int64_t count, int64_t grain, const F& body) {
  const Body call = [](int64_t begin, int64_t end, void* context) {
    const DefaultArithmetic arithmetic;
    (*static_cast<const F*>(context))(begin, end);
  };
  void* const context = const_cast<void*>(static_cast<const void*>(&body));
  if (parallel_for == nullptr || parallel_for(0, count, grain, call, context) != 0) {
    call(0, count, context);
  }
}

// The number of items that are worth a thread, at `bytes` read or written for each.
inline int64_t grain_of(int64_t bytes) { return bytes < 65536 ? 65536 / (bytes + 1) + 1 : 1; }

}  // namespace nibblespec
