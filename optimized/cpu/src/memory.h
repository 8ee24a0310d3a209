// Memory that the operating system has yet to supply.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace nibblespec {

constexpr int64_t MANY_BYTES = 4 << 20;

// Ask for large pages for an array that is about to be written. A large tensor is new memory each
// time, and its first touch costs many times the writing where it comes in pages of 4 kB. Advice:
// where it is not taken, nothing changes.
inline void ask_for_large_pages(void* array, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes < MANY_BYTES) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(array);
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + static_cast<uintptr_t>(bytes)) / page * page;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)array;
  (void)bytes;
#endif
}

}  // namespace nibblespec
