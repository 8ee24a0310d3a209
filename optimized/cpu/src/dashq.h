// dashq: weights (q - zero) * scale, each operation rounded to float32, then to the dtype asked for.
#pragma once

#include <vector>

#include "codes.h"
#include "floats.h"
#include "parallel.h"
#include "simd.h"

namespace nibblespec {

struct Module {
  int64_t nbits, group, rows, columns, stored;  // stored columns, of which the first are the weight
};

// Scales and zero points of a row's groups in float32.
struct RowParameters {
  std::vector<float> scale, zero;
};

// Fill the parameters of the groups that the row's columns reach, and return their number.
inline int64_t widen_parameters(const Module& module, const Floats& scale, const Floats& zero,
                                int64_t row, RowParameters* parameters) {
  const int64_t groups = (module.columns + module.group - 1) / module.group;
  const int64_t first = row * (module.stored / module.group);
  scale.widen(first, groups, &parameters->scale);
  zero.widen(first, groups, &parameters->zero);
  return groups;
}

// Call sink(column, weights, lanes) for the columns of one row, sixteen at a time; `lanes` is
// less in the last call where the width is no multiple of sixteen.
template <class Sink>
NIBBLESPEC_INLINE inline void weigh_row(const Module& module, const Codes& codes,
                                        const Floats& scale, const Floats& zero, int64_t row,
                                        RowParameters* parameters, const Sink& sink) {
  Codes::Place at = codes.place(row * module.stored);
  const int64_t groups = widen_parameters(module, scale, zero, row, parameters);
  const float* const row_scale = parameters->scale.data();
  const float* const row_zero = parameters->zero.data();
  int64_t k = 0;
  if (module.group % LANES == 0) {
    for (int64_t g = 0; g < groups; ++g) {
      const F32 s = set(row_scale[g]);
      const F32 z = set(row_zero[g]);
      const int64_t columns = std::min(module.group, module.columns - k);
      codes.read(&at, columns / LANES, [&](F32 q) NIBBLESPEC_INLINE {
        sink(k, (q - z) * s, Full());
        k += LANES;
      });
      if (columns % LANES != 0) {
        codes.read(&at, 1, [&](F32 q) NIBBLESPEC_INLINE { sink(k, (q - z) * s, columns % LANES); });
      }
    }
    return;
  }
  alignas(64) float s[LANES] = {}, z[LANES] = {};
  int64_t group = -1, left = 0;
  for (; k < module.columns; k += LANES) {
    const int64_t lanes = std::min(LANES, module.columns - k);
    for (int64_t lane = 0; lane < lanes; ++lane, --left) {
      if (left == 0) {
        left = module.group;
        ++group;
      }
      s[lane] = row_scale[group];
      z[lane] = row_zero[group];
    }
    codes.read(&at, 1, [&](F32 q) NIBBLESPEC_INLINE { sink(k, (q - load(z)) * load(s), lanes); });
  }
}

// One row of 4-bit codes in groups of a multiple of 32, numbers of 16 bits: what the sixteen codes
// of a group stand for is computed once, and then looked up.
template <class T>
inline void look_up_row(const Module& module, const uint8_t* nibbles, const Floats& scale,
                        const Floats& zero, int64_t row, RowParameters* parameters, T* out) {
  const int64_t groups = widen_parameters(module, scale, zero, row, parameters);
  for (int64_t g = 0; g < groups; ++g) {
    const Table weights = table(
        out, (iota() - set(parameters->zero[g])) * set(parameters->scale[g]));
    for (int64_t i = 0; i < module.group; i += 2 * LANES) {
      look_up(out + g * module.group + i, nibbles + (g * module.group + i) / 2, weights);
    }
  }
}

template <class T>
void dashq_reconstruct(const Module& module, const uint32_t* words, const Floats& scale,
                       const Floats& zero, T* out) {
  const Codes codes(words, module.rows * module.stored, module.nbits);
  const bool in_tables = sizeof(T) == 2 && module.nbits == 4 && module.group % (2 * LANES) == 0 &&
                         module.columns % module.group == 0;
  parallel(module.rows, grain_of(module.columns * 3), [&](int64_t begin, int64_t end) {
    RowParameters parameters;
    for (int64_t row = begin; row < end; ++row) {
      T* const out_row = out + row * module.columns;
      if constexpr (sizeof(T) == 2) {
        if (in_tables) {
          const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
          look_up_row(module, bytes + row * module.stored / 2, scale, zero, row, &parameters,
                      out_row);
          continue;
        }
      }
      weigh_row(module, codes, scale, zero, row, &parameters,
                [=](int64_t k, F32 weights, auto lanes) NIBBLESPEC_INLINE {
                  store_up_to(out_row + k, weights, lanes);
                });
    }
  });
}

}  // namespace nibblespec
