// The packed layer for few tokens: weights go from the words into the sums, without a stop in
// memory.
#pragma once

#include <numeric>

#include "dashq.h"

namespace nibblespec {

constexpr int64_t MOST_TOKENS = 8;    // at a time: their sums stay in registers
constexpr int64_t SPAN_BYTES = 16384;  // of the tokens' columns that stay in the L1 cache
constexpr int64_t SPAN_ROWS = 16;     // rows that use them meanwhile

// Add the products of `Tokens` rows of x and a span of weights to totals, lane by lane.
template <int Tokens>
inline void add_products(const Module& module, const Codes& codes, const Floats& scale,
                         const Floats& zero, const Span& span, Parameters* parameters,
                         const float* x, int64_t padded, F32* totals) {
  F32 total[Tokens];
  unrolled<Tokens>([&](auto m) NIBBLESPEC_INLINE { total[m] = totals[m]; });
  const auto add = [&](int64_t k, F32 weights, auto lanes) NIBBLESPEC_INLINE {
    weights = keep(weights, lanes);  // what is past the row may be infinite, and x is zero there
    unrolled<Tokens>([&](auto m) NIBBLESPEC_INLINE {
      total[m] = multiply_add(weights, load(x + m * padded + k), total[m]);
    });
  };
  weigh(module, codes, scale, zero, span, parameters, add);
  unrolled<Tokens>([&](auto m) NIBBLESPEC_INLINE { totals[m] = total[m]; });
}

// Columns of a span that fit the cache: whole groups, a multiple of sixteen.
inline int64_t span_columns(const Module& module, int64_t tokens) {
  const int64_t step = std::lcm(module.group, LANES);
  const int64_t fitting = SPAN_BYTES / static_cast<int64_t>(sizeof(float)) / tokens;
  return std::max<int64_t>(1, fitting / step) * step;
}

// Some rows of the result for `Tokens` rows of x.
template <int Tokens, class T>
inline void apply_rows(const Module& module, const Codes& codes, const Floats& scale,
                       const Floats& zero, int64_t first, int64_t last, Parameters* parameters,
                       const float* x, int64_t padded, const float* bias, T* out) {
  F32 totals[SPAN_ROWS][Tokens];
  for (auto& of_row : totals) std::fill(of_row, of_row + Tokens, set(0.0f));
  const int64_t step = span_columns(module, Tokens);
  for (int64_t column = 0; column < module.columns; column += step) {
    for (int64_t row = first; row < last; ++row) {
      const Span span = {row, column, std::min(column + step, module.columns)};
      add_products<Tokens>(module, codes, scale, zero, span, parameters, x, padded,
                           totals[row - first]);
    }
  }
  for (int64_t row = first; row < last; ++row) {
    for (int m = 0; m < Tokens; ++m) {
      const float y = sum(totals[row - first][m]);
      round_to(out + m * module.rows + row, bias == nullptr ? y : y + bias[row]);
    }
  }
}

// x: float32 [tokens, padded], zeros past the columns; bias: float32 [rows] or null; out:
// [tokens, rows]. A token's sums are in the order of the columns, whatever the other tokens.
template <class T>
void dashq_linear(const Module& module, const float* x, int64_t tokens, int64_t padded,
                  const uint32_t* words, const Floats& scale, const Floats& zero,
                  const float* bias, T* out) {
  const Codes codes(words, module.rows * module.stored, module.nbits);
  parallel(module.rows, grain_of(padded * (1 + tokens)), [&](int64_t begin, int64_t end) {
    Parameters parameters;
    for (int64_t first = begin; first < end; first += SPAN_ROWS) {
      const int64_t last = std::min(first + SPAN_ROWS, end);
      int64_t m = 0;
      const auto some = [&](auto count) {
        for (; m + count() <= tokens; m += count()) {
          apply_rows<count()>(module, codes, scale, zero, first, last, &parameters,
                              x + m * padded, padded, bias, out + m * module.rows);
        }
      };
      some(std::integral_constant<int, MOST_TOKENS>());
      some(std::integral_constant<int, 5>());
      some(std::integral_constant<int, 4>());
      some(std::integral_constant<int, 2>());
      some(std::integral_constant<int, 1>());
    }
  });
}

}  // namespace nibblespec
