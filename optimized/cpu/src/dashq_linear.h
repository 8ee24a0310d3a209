// The packed layer for few tokens: weights go from the words into the sums, without a stop in
// memory.
#pragma once

#include "dashq.h"

namespace nibblespec {

// The sums of `Tokens` rows of x over one row of weights: lane by lane in the order of the
// columns, then `sum`.
template <int Tokens>
inline void row_products(const Module& module, const Codes& codes, const Floats& scale,
                         const Floats& zero, int64_t row, RowParameters* parameters,
                         const float* x, int64_t padded, float* out) {
  F32 total[Tokens];
  for (F32& each : total) each = set(0.0f);
  const auto add = [&](int64_t k, F32 weights, auto lanes) NIBBLESPEC_INLINE {
    weights = keep(weights, lanes);  // what is past the row may be infinite, and x is zero there
#pragma GCC unroll 8
    for (int m = 0; m < Tokens; ++m) {
      total[m] = multiply_add(weights, load(x + m * padded + k), total[m]);
    }
  };
  weigh_row(module, codes, scale, zero, row, parameters, add);
  for (int m = 0; m < Tokens; ++m) out[m] = sum(total[m]);
}

// x: float32 [tokens, padded], zeros past the columns; bias: float32 [rows] or null; out:
// [tokens, rows].
template <class T>
void dashq_linear(const Module& module, const float* x, int64_t tokens, int64_t padded,
                  const uint32_t* words, const Floats& scale, const Floats& zero,
                  const float* bias, T* out) {
  const Codes codes(words, module.rows * module.stored, module.nbits);
  parallel(module.rows, grain_of(padded * (1 + tokens)), [&](int64_t begin, int64_t end) {
    RowParameters parameters;
    std::vector<float> sums(tokens);
    for (int64_t row = begin; row < end; ++row) {
      int64_t m = 0;
      const auto some = [&](auto count) {
        for (; m + count() <= tokens; m += count()) {
          row_products<count()>(module, codes, scale, zero, row, &parameters, x + m * padded,
                                padded, sums.data() + m);
        }
      };
      some(std::integral_constant<int, 8>());
      some(std::integral_constant<int, 4>());
      some(std::integral_constant<int, 2>());
      some(std::integral_constant<int, 1>());
      for (m = 0; m < tokens; ++m) {
        round_to(out + m * module.rows + row, bias == nullptr ? sums[m] : sums[m] + bias[row]);
      }
    }
  });
}

}  // namespace nibblespec
