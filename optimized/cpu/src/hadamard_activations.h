// A8 of the Hadamard transform, in the arithmetic of the two.
#pragma once

#include "activations.h"
#include "hadamard.h"

namespace nibblespec {

// Numbers that are transformed before they are quantized: 1 MB of them stays in a cache, where all
// of a prefill would pass through memory, new memory at that.
constexpr int64_t TRANSFORMED_NUMBERS = 1 << 18;

// x, codes: [tokens, order * m]; scale: [tokens, order * m / group]; matrix and factor as for
// `hadamard`.
inline void quantize_transformed(int64_t tokens, int64_t order, int64_t m, int64_t group,
                                 const Floats& x, const float* matrix, float factor, int8_t* codes,
                                 float* scale) {
  const int64_t n = order * m, groups = n / group;
  const int64_t most = std::max(int64_t{1}, TRANSFORMED_NUMBERS / n);
  Numbers y(std::min(tokens, most) * n);
  const Floats transformed = {FLOAT32, y.data()};
  for (int64_t first = 0; first < tokens; first += most) {
    const int64_t count = std::min(most, tokens - first);
    hadamard(count, order, m, x.from(first * n), matrix, factor, y.data());
    quantize_activations(count * groups, group, transformed, codes + first * n,
                         scale + first * groups);
  }
}

}  // namespace nibblespec
