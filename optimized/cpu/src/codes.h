// A sequence of codes in 32-bit words, read sixteen at a time: 32 / nbits codes in a word, the
// first in its lowest bits, none across two words.
#pragma once

#include "simd.h"

namespace nibblespec {

class Codes {
 public:
  Codes(const uint32_t* words, int64_t count, int64_t nbits)
      : words_(words),
        end_((count + 32 / nbits - 1) / (32 / nbits)),
        per_word_(32 / nbits),
        step_words_(LANES / per_word_),
        step_slots_(LANES % per_word_),
        mask_((1u << nbits) - 1u) {
    for (int64_t slot = 0; slot < per_word_; ++slot) {
      for (int64_t lane = 0; lane < LANES; ++lane) {
        index_[slot][lane] = static_cast<int32_t>((slot + lane) / per_word_);
        shift_[slot][lane] = static_cast<int32_t>((slot + lane) % per_word_ * nbits);
      }
    }
  }

  // A place in the sequence.
  struct Place {
    int64_t word;
    int64_t slot;
  };

  Place place(int64_t code) const { return {code / per_word_, code % per_word_}; }

  // The word that holds a code.
  const uint32_t* word_of(int64_t code) const { return words_ + code / per_word_; }

  // Call sink(codes) `steps` times, with the next sixteen codes each. Codes past the last word
  // are zeros.
  template <class Sink>
  NIBBLESPEC_INLINE inline void read(Place* at, int64_t steps, const Sink& sink) const {
    const int64_t step_words = step_words_;
    const int64_t step_slots = step_slots_;
    int64_t word = at->word;
    int64_t slot = at->slot;
    const bool inside = word + steps * (step_words + 1) + 8 <= end_;
    if (inside && step_slots == 0) {
      const uint32_t* p = words_ + word;
      const int32_t* const index = index_[slot];
      const int32_t* const shift = shift_[slot];
      for (int64_t i = 0; i < steps; ++i, p += step_words) sink(bit_fields(p, index, shift, mask_));
      at->word += steps * step_words;
      return;
    }
    for (int64_t i = 0; i < steps; ++i) {
      if (inside || word + 8 <= end_) {
        sink(bit_fields(words_ + word, index_[slot], shift_[slot], mask_));
      } else {
        uint32_t last[8] = {};
        if (word < end_) std::copy(words_ + word, words_ + end_, last);
        sink(bit_fields(last, index_[slot], shift_[slot], mask_));
      }
      word += step_words;
      slot += step_slots;
      if (slot >= per_word_) {
        slot -= per_word_;
        word += 1;
      }
    }
    *at = {word, slot};
  }

 private:
  const uint32_t* words_;
  int64_t end_;
  int64_t per_word_, step_words_, step_slots_;  // the steps: of sixteen codes
  uint32_t mask_;
  // Of lane i, where the first lane is in the given slot: its word, and the code's lowest bit.
  alignas(64) int32_t index_[32][LANES];
  alignas(64) int32_t shift_[32][LANES];
};

}  // namespace nibblespec
