// A8: int8 codes and one float32 scale for each group of a token's columns.
#pragma once

#include "floats.h"
#include "parallel.h"

namespace nibblespec {

constexpr float SMALLEST_SCALE = 1e-8f;

// Of numbers in float32 with zeros to a multiple of sixteen.
inline float largest_magnitude(const Numbers& x) {
  F32 most = set(0.0f);
  for (size_t k = 0; k < x.size(); k += LANES) most = max(most, abs(load(x.data() + k)));
  return largest(most);
}

// x, codes: [groups, width]; scale: [groups].
inline void quantize_activations(int64_t groups, int64_t width, const Floats& x, int8_t* codes,
                                 float* scale) {
  parallel(groups, grain_of(width * 4), [&](int64_t begin, int64_t end) {
    Numbers of_group;
    for (int64_t g = begin; g < end; ++g) {
      x.widen(g * width, width, &of_group);
      scale[g] = std::max(largest_magnitude(of_group) / 127.0f, SMALLEST_SCALE);
      const F32 divisor = set(scale[g]);
      for (int64_t k = 0; k < width; k += LANES) {
        F32 code = round_even(load(of_group.data() + k) / divisor);
        code = max(set(-128.0f), min(set(127.0f), code));
        store_bytes_up_to(codes + g * width + k, code, width - k);
      }
    }
  });
}

}  // namespace nibblespec
