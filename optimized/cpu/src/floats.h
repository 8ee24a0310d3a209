// Arrays of floating-point numbers whose dtype is known at run time.
#pragma once

#include "simd.h"

namespace nibblespec {

enum Dtype : int32_t { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2 };

// Call function(typed pointer) for an array of numbers.
template <class F>
inline void typed(int32_t dtype, void* array, const F& function) {
  switch (dtype) {
    case FLOAT16:
      return function(static_cast<f16*>(array));
    case BFLOAT16:
      return function(static_cast<bf16*>(array));
    default:
      return function(static_cast<float*>(array));
  }
}

template <class T>
inline void widen_each(const T* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += LANES) store(out + i, load_up_to(p + i, n - i));
}

// An array to read.
struct Floats {
  int32_t dtype;
  const void* data;

  // The array from its element `start` on.
  Floats from(int64_t start) const {
    const int64_t bytes = dtype == FLOAT32 ? 4 : 2;
    return {dtype, static_cast<const char*>(data) + start * bytes};
  }

  // The n numbers from `start` on in float32 (exact), and zeros to a multiple of sixteen.
  void widen(int64_t start, int64_t n, Numbers* out) const {
    out->resize((n + LANES - 1) / LANES * LANES);
    switch (dtype) {
      case FLOAT16:
        return widen_each(static_cast<const f16*>(data) + start, n, out->data());
      case BFLOAT16:
        return widen_each(static_cast<const bf16*>(data) + start, n, out->data());
      default:
        return widen_each(static_cast<const float*>(data) + start, n, out->data());
    }
  }
};

}  // namespace nibblespec
