// The functions of the library, as C sees them. Pointers are to contiguous arrays; sizes and
// dtypes have been checked by the caller. Each returns 0, or 1 where memory ran out.

#include <exception>

#include "activations.h"
#include "attention.h"
#include "dashq_linear.h"
#include "hadamard.h"
#include "hadamard_activations.h"
#include "kv.h"
#include "memory.h"
#include "nested.h"
#include "nested_linear.h"

using namespace nibblespec;

namespace {

template <class F>
int32_t guarded(const F& function) {
  try {
    const DefaultArithmetic arithmetic;
    function();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void nibblespec_use_threads(ParallelFor function) { parallel_for = function; }

const char* nibblespec_instructions() {
#if defined(NIBBLESPEC_VNNI)
  return NIBBLESPEC_SIMD ", VNNI";
#else
  return NIBBLESPEC_SIMD;
#endif
}

int32_t nibblespec_dashq_reconstruct(const int64_t* module, const uint32_t* words,
                                     int32_t parameter_dtype, const void* scale, const void* zero,
                                     int32_t dtype, void* out) {
  return guarded([&] {
    const Module given = {module[0], module[1], module[2], module[3], module[4]};
    typed(dtype, out, [&](auto* result) {
      ask_for_large_pages(out, given.rows * given.columns * int64_t{sizeof *result});
      dashq_reconstruct(given, words, Floats{parameter_dtype, scale},
                        Floats{parameter_dtype, zero}, result);
    });
  });
}

int32_t nibblespec_dashq_linear(const int64_t* module, const float* x, int64_t tokens,
                                int64_t padded, const uint32_t* words, int32_t parameter_dtype,
                                const void* scale, const void* zero, const float* bias,
                                int32_t dtype, void* out) {
  return guarded([&] {
    const Module given = {module[0], module[1], module[2], module[3], module[4]};
    typed(dtype, out, [&](auto result) {
      dashq_linear(given, x, tokens, padded, words, Floats{parameter_dtype, scale},
                   Floats{parameter_dtype, zero}, bias, result);
    });
  });
}

int32_t nibblespec_nested_reconstruct(int64_t rows, int64_t columns, int64_t group,
                                      const uint8_t* hi, const uint8_t* lo, int32_t scale_dtype,
                                      const void* scale, int32_t dtype, void* out) {
  return guarded([&] {
    typed(dtype, out, [&](auto* result) {
      ask_for_large_pages(out, rows * columns * int64_t{sizeof *result});
      nested_reconstruct(rows, columns, group, hi, lo, Floats{scale_dtype, scale}, result);
    });
  });
}

int32_t nibblespec_nested_linear(int64_t tokens, int64_t rows, int64_t columns, int64_t x_group,
                                 int64_t group, const int8_t* xq, const float* sx,
                                 const uint8_t* hi, const uint8_t* lo, const void* scale,
                                 const void* bias, int32_t dtype, void* out) {
  return guarded([&] {
    const NestedLayer layer = {tokens, rows, columns, x_group, group, xq, sx, hi, lo,
                               static_cast<const f16*>(scale), static_cast<const f16*>(bias)};
    typed(dtype, out, [&](auto result) { nested_linear(layer, result); });
  });
}

int32_t nibblespec_quantize_activations(int64_t groups, int64_t width, int32_t x_dtype,
                                        const void* x, int8_t* codes, float* scale) {
  return guarded(
      [&] { quantize_activations(groups, width, Floats{x_dtype, x}, codes, scale); });
}

int32_t nibblespec_hadamard(int64_t tokens, int64_t order, int64_t m, int32_t x_dtype,
                            const void* x, const float* matrix, float scale, int32_t dtype,
                            void* out) {
  return guarded([&] {
    typed(dtype, out, [&](auto result) {
      hadamard(tokens, order, m, Floats{x_dtype, x}, matrix, scale, result);
    });
  });
}

int32_t nibblespec_quantize_transformed(int64_t tokens, int64_t order, int64_t m, int64_t group,
                                        int32_t x_dtype, const void* x, const float* matrix,
                                        float factor, int8_t* codes, float* scale) {
  return guarded([&] {
    quantize_transformed(tokens, order, m, group, Floats{x_dtype, x}, matrix, factor, codes,
                         scale);
  });
}

int32_t nibblespec_kv_quantize(int64_t vectors, int64_t width, int32_t x_dtype, const void* x,
                               const float* offset, int64_t heads, int64_t per_head, uint8_t* hi,
                               uint8_t* lo, float* scale) {
  return guarded([&] {
    kv_quantize(vectors, width, Floats{x_dtype, x}, offset, heads, per_head, hi, lo, scale);
  });
}

int32_t nibblespec_kv_attention(int64_t batch_heads, int64_t heads, int64_t shared,
                                int64_t queries, int64_t width, int64_t position, int64_t length,
                                const float* q, const uint8_t* k_hi, const uint8_t* k_lo,
                                const float* k_scale, const uint8_t* v_hi, const uint8_t* v_lo,
                                const float* v_scale, const float* offset, float scale,
                                int32_t dtype, void* out) {
  return guarded([&] {
    const NestedCache cache = {length, k_hi, k_lo, v_hi, v_lo, k_scale, v_scale};
    const Attention call = {batch_heads, heads, shared, queries, width, position,
                            cache,       q,     offset, scale};
    typed(dtype, out, [&](auto result) { attention(call, result); });
  });
}

}  // extern "C"
#pragma GCC visibility pop
