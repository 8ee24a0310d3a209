// The packed layer with 4-bit codes, for few tokens: some rows of weights at a time.
//
// The words of the rows are read from their begin to their end, which is how memory is quick, and
// what is loaded of x is used for all of the rows. Sums are those of dashq_linear.h, bit by bit.
#pragma once

#include "dashq.h"

namespace nibblespec {

inline bool in_streams(const Module& module) {
  return STREAMS > 1 && module.nbits == 4 && module.group % LANES == 0;
}

// Sums of `Tokens` rows of x times `Rows` rows of weights, from row `first` on.
template <int Rows, int Tokens>
inline void add_streams(const Module& module, const Codes& codes, const Floats& scale,
                        const Floats& zero, int64_t first, Parameters* parameters, const float* x,
                        int64_t padded, F32 (*totals)[Tokens]) {
  const int64_t groups = module.stored / module.group, words = module.stored / 8;
  scale.widen(first * groups, Rows * groups, &parameters->scale);
  zero.widen(first * groups, Rows * groups, &parameters->zero);
  const float* s = parameters->scale.data();
  const float* z = parameters->zero.data();
  const uint32_t* two = codes.word_of(first * module.stored);
  F32 total[Rows][Tokens];
  unrolled<Rows * Tokens>([&](auto i) NIBBLESPEC_INLINE {
    total[i / Tokens][i % Tokens] = set(0.0f);
  });
  const auto add = [&](int64_t k, const FloatTable* weights, auto lanes) NIBBLESPEC_INLINE {
    F32 weight[Rows];
    unrolled<Rows>([&](auto row) NIBBLESPEC_INLINE {
      // What is past the row may be infinite, and x is zero there.
      weight[row] = keep(look_up(two + row * words, weights[row]), lanes);
    });
    unrolled<Tokens>([&](auto m) NIBBLESPEC_INLINE {
      const F32 token = in_register(load(x + m * padded + k));
      unrolled<Rows>([&](auto row) NIBBLESPEC_INLINE {
        total[row][m] = multiply_add(weight[row], token, total[row][m]);
      });
    });
    two += 2;
  };
  for (int64_t k = 0; k < module.columns; ++s, ++z) {
    FloatTable weights[Rows];
    unrolled<Rows>([&](auto row) NIBBLESPEC_INLINE {
      weights[row] = float_table(z[row * groups], s[row * groups]);
    });
    const int64_t stop = std::min(k + module.group, module.columns);
    for (; k + LANES <= stop; k += LANES) add(k, weights, Full());
    if (k < stop) {
      add(k, weights, stop - k);
      k = stop;
    }
  }
  unrolled<Rows * Tokens>([&](auto i) NIBBLESPEC_INLINE {
    totals[i / Tokens][i % Tokens] = total[i / Tokens][i % Tokens];
  });
}

}  // namespace nibblespec
