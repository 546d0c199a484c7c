// csrc/verify.cu on the host: every lane is a fiber, collectives wait for the other lanes, and blocks
// run one after another in the order of their tickets. It shows what the kernel computes, not races.
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#define EMULATED 1
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__

struct Index {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace {

Index threadIdx, blockIdx, gridDim;

template <typename To, typename From>
To bits(From x) {
  To y;
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&y, &x, sizeof y);
  return y;
}
int __float_as_int(float x) { return bits<int>(x); }
unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
float __int_as_float(int x) { return bits<float>(x); }
float __uint_as_float(unsigned x) { return bits<float>(x); }
int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
int min(int a, int b) { return a < b ? a : b; }
int max(int a, int b) { return a > b ? a : b; }

// ---- fibers ----
struct Group {
  int size = 0, arrived = 0, generation = 0;
  unsigned values[2][32];
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool alive;
};
constexpr size_t kStack = 64 << 10;
std::vector<Fiber> fibers;
std::vector<Group> warps;
Group block;
ucontext_t scheduler;
int running;

void yield() {
  int me = running;
  swapcontext(&fibers[me].context, &scheduler);
  threadIdx = {static_cast<unsigned>(me), 0};
}

void meet(Group& group) {
  int mine = group.generation;
  if (++group.arrived == group.size) {
    group.arrived = 0;
    ++group.generation;
  } else {
    while (group.generation == mine) yield();
  }
}

const unsigned* exchange(unsigned value) {
  Group& warp = warps[threadIdx.x / 32];
  unsigned* values = warp.values[warp.generation & 1];
  values[threadIdx.x % 32] = value;
  meet(warp);
  return values;
}

void __syncthreads() { meet(block); }
[[maybe_unused]] void __syncwarp() { meet(warps[threadIdx.x / 32]); }
template <typename T>
T __shfl_sync(unsigned, T x, int lane) {
  return bits<T>(exchange(bits<unsigned>(x))[lane & 31]);
}
template <typename T>
T __shfl_up_sync(unsigned, T x, int d) {
  int lane = threadIdx.x % 32;
  return bits<T>(exchange(bits<unsigned>(x))[lane >= d ? lane - d : lane]);
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int d) {
  int lane = threadIdx.x % 32;
  return bits<T>(exchange(bits<unsigned>(x))[lane ^ d]);
}
unsigned __ballot_sync(unsigned, bool x) {
  const unsigned* all = exchange(x);
  unsigned set = 0;
  for (int i = 0; i < 32; ++i) set |= all[i] << i;
  return set;
}
bool __all_sync(unsigned, bool x) { return __ballot_sync(~0u, x) == ~0u; }
int __reduce_max_sync(unsigned, int x) {
  const unsigned* all = exchange(bits<unsigned>(x));
  int best = bits<int>(all[0]);
  for (int i = 1; i < 32; ++i) best = max(best, bits<int>(all[i]));
  return best;
}
unsigned __reduce_min_sync(unsigned, unsigned x) {
  const unsigned* all = exchange(x);
  unsigned best = all[0];
  for (int i = 1; i < 32; ++i) best = all[i] < best ? all[i] : best;
  return best;
}

int ask(const int* p) { return *p; }
float power2(float x) { return std::exp2(x); }
float logarithm2(float x) { return std::log2(x); }
void publish(unsigned long long* p, unsigned long long x) { *p = x; }
unsigned long long look(const unsigned long long* p) { return *p; }
unsigned take_ticket(unsigned* p) { return (*p)++; }
void wait_for_the_kernel_before() {}

template <typename T>
uint4 fetch(const T* p) {
  uint4 raw;
  std::memcpy(&raw, p, sizeof raw);
  return raw;
}

}  // namespace

#include SOURCE

static const Args* given;

static void lane_main() {
  verify(*given);
  fibers[running].alive = false;
  swapcontext(&fibers[running].context, &scheduler);
}

extern "C" int run(const Args* arguments, unsigned blocks, unsigned rows) {
  given = arguments;
  gridDim = {blocks, rows};
  fibers.resize(THREADS);
  for (unsigned b = 0; b < blocks * rows; ++b) {
    blockIdx = {b % blocks, b / blocks};
    warps.assign(WARPS, Group{});
    for (Group& warp : warps) warp.size = 32;
    block = Group{};
    block.size = THREADS;
    for (int i = 0; i < THREADS; ++i) {
      Fiber& fiber = fibers[i];
      if (!fiber.stack) fiber.stack = std::make_unique<char[]>(kStack);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = &scheduler;
      makecontext(&fiber.context, lane_main, 0);
      fiber.alive = true;
    }
    for (int left = THREADS, idle = 0; left;) {
      int before = left;
      for (int i = 0; i < THREADS; ++i) {
        if (!fibers[i].alive) continue;
        running = i;
        threadIdx = {static_cast<unsigned>(i), 0};
        swapcontext(&scheduler, &fibers[i].context);
        if (!fibers[i].alive) --left;
      }
      idle = left == before ? idle + 1 : 0;
      if (idle > 100000) return 1;  // lanes that wait for each other for ever
    }
  }
  return 0;
}

extern "C" int chunk_elements() { return CHUNK; }
