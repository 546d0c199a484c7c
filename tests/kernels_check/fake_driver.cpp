// Answers like the CUDA driver's virtual-memory calls and remembers what was asked.
#include <cstddef>

extern "C" {
size_t fake_reserved, fake_mapped, fake_unmapped, fake_given_back;
unsigned long long fake_middle;
int fake_fail_at;  // 1: create fails

int cuMemGetAllocationGranularity(size_t* unit, const void*, int) { return *unit = 2 << 20, 0; }
int cuMemAddressReserve(unsigned long long* to, size_t n, size_t, unsigned long long,
                        unsigned long long) {
  *to = 0x700000000000ull;
  fake_reserved = n;
  return 0;
}
int cuMemCreate(unsigned long long* handle, size_t n, const void*, unsigned long long) {
  if (fake_fail_at == 1) return 2;
  *handle = 42;
  fake_mapped = n;
  return 0;
}
int cuMemMap(unsigned long long at, size_t, size_t, unsigned long long, unsigned long long) {
  fake_middle = at;
  return 0;
}
int cuMemSetAccess(unsigned long long, size_t, const void*, size_t) { return 0; }
int cuMemUnmap(unsigned long long, size_t n) { return fake_unmapped = n, 0; }
int cuMemRelease(unsigned long long) { return 0; }
int cuMemAddressFree(unsigned long long, size_t n) { return fake_given_back = n, 0; }
}
