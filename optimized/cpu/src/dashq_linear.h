// The packed layer: x times the float32 weights, which never are all in memory.
//
// Lane i of sixteen sums the columns i, i + 16, i + 32, … in this order, then `sum` adds the lanes:
// whatever the blocks and whatever the number of tokens, a token gets the same bits.
#pragma once

#include <numeric>

#include "dashq.h"
#include "dashq_streams.h"

namespace nibblespec {

constexpr int64_t BLOCK_ROWS = 16;      // rows of weights that share a span of the tokens
constexpr int64_t FEW_TOKENS = 5;       // whose sums over a row stay in registers
constexpr int64_t FEW_IN_STREAMS = 15;  // for which weights are rather unpacked three times
constexpr int64_t SPAN_TOKENS = 8;      // for which, of many, a span is as wide as the cache allows
constexpr int64_t SPAN_BYTES = 32768;    // of tokens' columns: that of a usual L1 cache

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

// Columns of a span that fit the cache for so many tokens: whole groups, a multiple of sixteen.
inline int64_t span_columns(const Module& module, int64_t tokens) {
  const int64_t step = std::lcm(module.group, LANES);
  const int64_t fitting = SPAN_BYTES / static_cast<int64_t>(sizeof(float)) / tokens;
  return std::max<int64_t>(1, fitting / step) * step;
}

template <class T>
inline void finish(F32 totals, const float* bias, int64_t row, T* out) {
  const float y = sum(totals);
  round_to(out, bias == nullptr ? y : y + bias[row]);
}

// Sums of `Tokens` rows of x times the rows first … last - 1 of the weights, in spans of columns.
template <int Tokens>
inline void add_spans(const Module& module, const Codes& codes, const Floats& scale,
                      const Floats& zero, int64_t first, int64_t last, Parameters* parameters,
                      const float* x, int64_t padded, F32 (*totals)[Tokens]) {
  for (int64_t n = 0; n < last - first; ++n) std::fill(totals[n], totals[n] + Tokens, set(0.0f));
  const int64_t step = span_columns(module, Tokens);
  for (int64_t column = 0; column < module.columns; column += step) {
    for (int64_t row = first; row < last; ++row) {
      const Span span = {row, column, std::min(column + step, module.columns)};
      add_products<Tokens>(module, codes, scale, zero, span, parameters, x, padded,
                           totals[row - first]);
    }
  }
}

// Some rows of the result for `Tokens` rows of x: weights go from the words into the sums.
template <int Tokens, class T>
inline void apply_to_few(const Module& module, const Codes& codes, const Floats& scale,
                         const Floats& zero, int64_t first, int64_t last, Parameters* parameters,
                         const float* x, int64_t padded, const float* bias, T* out) {
  F32 totals[BLOCK_ROWS][Tokens];
  int64_t row = first;
  if (in_streams(module)) {
    for (; row + STREAMS <= last; row += STREAMS) {
      add_streams<STREAMS, Tokens>(module, codes, scale, zero, row, parameters, x, padded,
                                   totals + (row - first));
    }
  }
  add_spans(module, codes, scale, zero, row, last, parameters, x, padded, totals + (row - first));
  for (row = first; row < last; ++row) {
    for (int m = 0; m < Tokens; ++m) {
      finish(totals[row - first][m], bias, row, out + m * module.rows + row);
    }
  }
}

// Add to totals [Tokens, BLOCK_ROWS] the products of TILE rows of weights [BLOCK_ROWS, columns].
template <int Tokens>
inline void multiply(const float* weights, int64_t columns, const float* x, int64_t padded,
                     F32* totals) {
  F32 total[Tokens][TILE];
  unrolled<Tokens * TILE>([&](auto i) NIBBLESPEC_INLINE {
    total[i / TILE][i % TILE] = totals[i / TILE * BLOCK_ROWS + i % TILE];
  });
  for (int64_t k = 0; k < columns; k += LANES) {
    F32 weight[TILE];
    unrolled<TILE>([&](auto n) NIBBLESPEC_INLINE {
      weight[n] = in_register(load(weights + n * columns + k));
    });
    unrolled<Tokens>([&](auto m) NIBBLESPEC_INLINE {
      const F32 token = in_register(load(x + m * padded + k));
      unrolled<TILE>([&](auto n) NIBBLESPEC_INLINE {
        total[m][n] = multiply_add(weight[n], token, total[m][n]);
      });
    });
  }
  unrolled<Tokens * TILE>([&](auto i) NIBBLESPEC_INLINE {
    totals[i / TILE * BLOCK_ROWS + i % TILE] = total[i / TILE][i % TILE];
  });
}

// Scratch memory of a thread.
struct Blocks {
  Numbers weights;
  std::vector<F32> totals;
};

// The same for many: spans of a block of rows are unpacked once, and all tokens pass by.
template <class T>
inline void apply_to_many(const Module& module, const Codes& codes, const Floats& scale,
                          const Floats& zero, int64_t first, int64_t last, Parameters* parameters,
                          Blocks* blocks, const float* x, int64_t tokens, int64_t padded,
                          const float* bias, T* out) {
  const int64_t step = span_columns(module, SPAN_TOKENS);
  blocks->totals.assign(tokens * BLOCK_ROWS, set(0.0f));
  for (int64_t column = 0; column < module.columns; column += step) {
    const int64_t stop = std::min(column + step, module.columns);
    const int64_t columns = (stop - column + LANES - 1) / LANES * LANES;
    blocks->weights.assign(BLOCK_ROWS * columns, 0.0f);
    for (int64_t row = first; row < last; ++row) {
      float* const to = blocks->weights.data() + (row - first) * columns - column;
      weigh(module, codes, scale, zero, {row, column, stop}, parameters,
            [=](int64_t k, F32 weights, auto lanes) NIBBLESPEC_INLINE {
              store(to + k, keep(weights, lanes));
            });
    }
    for (int64_t m = 0; m < tokens;) {
      const bool full = m + TILE <= tokens;
      for (int64_t n = 0; n < last - first; n += TILE) {
        const float* const weights = blocks->weights.data() + n * columns;
        const float* const token = x + m * padded + column;
        F32* const totals = blocks->totals.data() + m * BLOCK_ROWS + n;
        if (full) {
          multiply<TILE>(weights, columns, token, padded, totals);
        } else {
          multiply<1>(weights, columns, token, padded, totals);
        }
      }
      m += full ? TILE : 1;
    }
  }
  for (int64_t m = 0; m < tokens; ++m) {
    for (int64_t row = first; row < last; ++row) {
      finish(blocks->totals[m * BLOCK_ROWS + row - first], bias, row,
             out + m * module.rows + row);
    }
  }
}

// x: float32 [tokens, padded], zeros past the columns; bias: float32 [rows] or null; out:
// [tokens, rows].
template <class T>
void dashq_linear(const Module& module, const float* x, int64_t tokens, int64_t padded,
                  const uint32_t* words, const Floats& scale, const Floats& zero,
                  const float* bias, T* out) {
  const Codes codes(words, module.rows * module.stored, module.nbits);
  const int64_t blocks_of_rows = (module.rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const int64_t grain = grain_of(BLOCK_ROWS * padded * (1 + tokens));
  parallel(blocks_of_rows, grain, [&](int64_t begin, int64_t end) {
    Parameters parameters;
    Blocks blocks;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * BLOCK_ROWS;
      const int64_t last = std::min(first + BLOCK_ROWS, module.rows);
      if (tokens > (in_streams(module) ? FEW_IN_STREAMS : FEW_TOKENS)) {
        apply_to_many(module, codes, scale, zero, first, last, &parameters, &blocks, x, tokens,
                      padded, bias, out);
        continue;
      }
      for (int64_t m = 0; m < tokens;) {
        const int64_t left = tokens - m, passes = (left + FEW_TOKENS - 1) / FEW_TOKENS;
        const auto apply = [&](auto count) {
          apply_to_few<count()>(module, codes, scale, zero, first, last, &parameters,
                                x + m * padded, padded, bias, out + m * module.rows);
          m += count();
        };
        switch ((left + passes - 1) / passes) {
          case 1: apply(std::integral_constant<int, 1>()); break;
          case 2: apply(std::integral_constant<int, 2>()); break;
          case 3: apply(std::integral_constant<int, 3>()); break;
          case 4: apply(std::integral_constant<int, 4>()); break;
          default: apply(std::integral_constant<int, FEW_TOKENS>());
        }
      }
    }
  });
}

}  // namespace nibblespec
