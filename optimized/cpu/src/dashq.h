// dashq: weights (q - zero) * scale, each operation rounded to float32, then to the output dtype.
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

// Columns first … last - 1 of a row: whole groups, and a multiple of sixteen columns, but at the
// end of the row.
struct Span {
  int64_t row, first, last;
};

// Scales and zero points of a span's groups in float32.
struct Parameters {
  Numbers scale, zero;
};

inline void widen_parameters(const Module& module, const Floats& scale, const Floats& zero,
                                const Span& span, Parameters* parameters) {
  const int64_t groups = (span.last - span.first + module.group - 1) / module.group;
  const int64_t first = (span.row * module.stored + span.first) / module.group;
  scale.widen(first, groups, &parameters->scale);
  zero.widen(first, groups, &parameters->zero);
}

// Call sink(column, weights, lanes) for the columns of a span, sixteen at a time; `lanes` is less
// in the last call where the row's width is no multiple of sixteen.
template <class Sink>
NIBBLESPEC_INLINE inline void weigh(const Module& module, const Codes& codes, const Floats& scale,
                                    const Floats& zero, const Span& span, Parameters* parameters,
                                    const Sink& sink) {
  Codes::Place at = codes.place(span.row * module.stored + span.first);
  widen_parameters(module, scale, zero, span, parameters);
  const float* const scales = parameters->scale.data();
  const float* const zeros = parameters->zero.data();
  int64_t k = span.first;
  if (module.nbits == 4 && module.group % LANES == 0) {
    const uint32_t* two = codes.word_of(span.row * module.stored + k);
    const float* s = scales;
    const float* z = zeros;
    for (; k + module.group <= span.last; ++s, ++z) {
      const FloatTable weights = float_table(*z, *s);
      for (const int64_t stop = k + module.group; k < stop; k += LANES, two += 2) {
        sink(k, look_up(two, weights), Full());
      }
    }
    for (; k < span.last; k += LANES, two += 2) {
      sink(k, look_up(two, float_table(*z, *s)), std::min(LANES, span.last - k));
    }
    return;
  }
  if (module.group % LANES == 0) {
    const int64_t steps_of_group = module.group / LANES;
    const float* s = scales;
    const float* z = zeros;
    int64_t left = steps_of_group;
    codes.read(&at, (span.last - k) / LANES, [&](F32 q) NIBBLESPEC_INLINE {
      sink(k, (q - set(*z)) * set(*s), Full());
      k += LANES;
      if (--left == 0) {
        left = steps_of_group;
        ++s;
        ++z;
      }
    });
    if (k < span.last) {
      codes.read(&at, 1, [&](F32 q) NIBBLESPEC_INLINE {
        sink(k, (q - set(*z)) * set(*s), span.last - k);
      });
    }
    return;
  }
  alignas(64) float s[LANES] = {}, z[LANES] = {};
  int64_t group = -1, left = 0;
  for (; k < span.last; k += LANES) {
    const int64_t lanes = std::min(LANES, span.last - k);
    for (int64_t lane = 0; lane < lanes; ++lane, --left) {
      if (left == 0) {
        left = module.group;
        ++group;
      }
      s[lane] = scales[group];
      z[lane] = zeros[group];
    }
    codes.read(&at, 1, [&](F32 q) NIBBLESPEC_INLINE { sink(k, (q - load(z)) * load(s), lanes); });
  }
}

// One row of 4-bit codes in groups of a multiple of 32, numbers of 16 bits: what the sixteen codes
// of a group stand for is computed once, and then looked up.
template <class T>
inline void look_up_row(const Module& module, const uint8_t* nibbles, const Floats& scale,
                        const Floats& zero, const Span& span, Parameters* parameters, T* out) {
  widen_parameters(module, scale, zero, span, parameters);
  const float* s = parameters->scale.data();
  const float* z = parameters->zero.data();
  for (int64_t start = 0; start < module.columns; start += module.group, ++s, ++z) {
    const Table weights = table(out, (iota() - set(*z)) * set(*s));
    for (int64_t k = start; k < start + module.group; k += 2 * LANES) {
      look_up(out + k, nibbles + k / 2, weights);
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
    Parameters parameters;
    for (int64_t row = begin; row < end; ++row) {
      const Span span = {row, 0, module.columns};
      T* const out_row = out + row * module.columns;
      if constexpr (sizeof(T) == 2) {
        if (in_tables) {
          const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
          look_up_row(module, bytes + row * module.stored / 2, scale, zero, span, &parameters,
                      out_row);
          continue;
        }
      }
      weigh(module, codes, scale, zero, span, &parameters,
            [=](int64_t k, F32 weights, auto lanes) NIBBLESPEC_INLINE {
              store_up_to(out_row + k, weights, lanes);
            });
    }
  });
}

}  // namespace nibblespec
