// The verification of drafted tokens in one pass over the target's logits: softmax statistics of
// every row, the acceptance chain of every request, and the recovered or bonus token.
//
// A warp reads one chunk of one row at once, all its loads in flight together, and leaves eight bytes:
// how much the chunk holds and which of its tokens would be drawn from it. The drafted token is left
// out of that and kept beside it, so what is left is the recovered token's distribution without a
// subtraction. The block that starts last in a request (it took the last ticket) waits for the others'
// eight bytes, walks the chain and draws among the chunks: nothing is read twice, no block waits for a
// fence, and all that a block waits for is running already.
//
// ELEM: 0 float, 1 bfloat16. MUTANT: 0 the kernel; others are wrong on purpose (see mutants.py).
// STOP: 0 the kernel; 1 leaves the chunks' bytes and nobody finishes (for timing the two apart).
// EMULATED: compiled for the host, lane by lane, by the tests.

#ifndef ELEM
#define ELEM 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#ifndef STOP
#define STOP 0
#endif
#ifndef WARPS
#define WARPS 8
#endif
#ifndef VECTORS
#define VECTORS 8
#endif
#ifndef BLOCKS
#define BLOCKS 4
#endif
#ifndef PER_LANE
#define PER_LANE 8  // chunks of a row that a lane keeps: up to 32 times as many a row
#endif
#ifndef OVERLAP
#define OVERLAP 0
#endif

#define THREADS (WARPS * 32)
#define MAX_ROWS 16
#define TAG_SHIFT 20  // tokens have 20 bits; above them, which launch left them
#define TOKENS (1u << TAG_SHIFT)
#define LOG2E 1.4426950408889634f
#define NEG_INF (-__int_as_float(0x7f800000))

#if ELEM == 1
typedef unsigned short elem;
#define PER_VECTOR 8
#define NOTHING 0xff80u
#else
typedef float elem;
#define PER_VECTOR 4
#endif

#define LANE_ELEMENTS (VECTORS * PER_VECTOR)
#define CHUNK (32 * LANE_ELEMENTS)

struct Args {
  const elem* logits;       // [rows, vocab], rows `stride` elements apart
  const int* cu_rows;       // [requests + 1]: where each request's rows begin
  const int* request_of;    // [rows]
  const int* draft_ids;     // [rows]; -1 in a request's last row, or never accepted
  const float* accept_u;    // [rows]
  const float* sample_u;    // [requests, 2]: which chunk, and which token of it
  const int* greedy;        // [requests], 0 or 1
  int* out;                 // [requests, out_stride], -1 where nothing was emitted
  unsigned long long* parts;    // [rows, chunks], ~0 before the first launch
  unsigned long long* drafted;  // [rows]: the drafted token's logit; ~0 before the first launch
  unsigned* tickets;        // [requests], 0 before the first launch
  long long stride;
  int vocab, out_stride, chunks, aligned;
};

#ifndef EMULATED
__device__ __forceinline__ uint4 fetch(const elem* p) {
  uint4 raw;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(p));
  return raw;
}

// A load that stays where it is written: ahead of what hides its latency.
__device__ __forceinline__ int ask(const int* p) {
  int x;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(x) : "l"(p));
  return x;
}

__device__ __forceinline__ float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float logarithm2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Eight bytes that another block waits for: seen whole or not at all.
__device__ __forceinline__ void publish(unsigned long long* p, unsigned long long x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory");
}

__device__ __forceinline__ unsigned long long look(const unsigned long long* p) {
  unsigned long long x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
  return x;
}

__device__ __forceinline__ unsigned take_ticket(unsigned* p) {
  unsigned x;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(x) : "l"(p) : "memory");
  return x;
}

// Placed early, a kernel waits here until the one before it has ended and its results are seen.
__device__ __forceinline__ void wait_for_the_kernel_before() {
#if OVERLAP
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#endif

// Element `i` (known when compiling) of sixteen bytes.
__device__ __forceinline__ float element(const uint4& raw, int i) {
#if ELEM == 1
  unsigned w = i / 2 == 0 ? raw.x : i / 2 == 1 ? raw.y : i / 2 == 2 ? raw.z : raw.w;
  return __uint_as_float(i % 2 ? w & 0xffff0000u : w << 16);
#else
  return __uint_as_float(i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w);
#endif
}

// Sixteen bytes of a row where not all of them, or not aligned, are there.
__device__ __forceinline__ uint4 gather_vector(const elem* row, int at, int vocab) {
  uint4 raw = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < PER_VECTOR; ++i) {
#if ELEM == 1
    unsigned e = at + i < vocab ? row[at + i] : NOTHING;
    unsigned& w = i / 2 == 0 ? raw.x : i / 2 == 1 ? raw.y : i / 2 == 2 ? raw.z : raw.w;
    w |= i % 2 ? e << 16 : e;
#else
    (i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w) =
        __float_as_uint(at + i < vocab ? row[at + i] : NEG_INF);
#endif
  }
  return raw;
}

// A warp's share of a chunk: vector j of a lane begins at (j * 32 + lane) * PER_VECTOR.
__device__ __forceinline__ void read(const Args& a, const elem* row, int begin, int lane,
                                     uint4 (&raw)[VECTORS]) {
  int at = begin + lane * PER_VECTOR;
  if (a.aligned && begin + CHUNK <= a.vocab) {
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) raw[j] = fetch(row + at + j * 32 * PER_VECTOR);
  } else {
#pragma unroll
    for (int j = 0; j < VECTORS; ++j)
      raw[j] = gather_vector(row, at + j * 32 * PER_VECTOR, a.vocab);
  }
}

__device__ __forceinline__ int token_at(int begin, int lane, int j) {
  return begin + (j / PER_VECTOR * 32 + lane) * PER_VECTOR + j % PER_VECTOR;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
  return x;
}

// Integers in the order of the floats: one instruction finds the largest of a warp.
__device__ __forceinline__ float warp_max(float x) {
  int i = __float_as_int(x);
  i = __reduce_max_sync(~0u, i ^ ((i >> 31) & 0x7fffffff));
  return __int_as_float(i ^ ((i >> 31) & 0x7fffffff));
}

__device__ __forceinline__ float running_sum(float x, int lane) {
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    float other = __shfl_up_sync(~0u, x, d);
    if (lane >= d) x += other;
  }
  return x;
}

// Whose share of the running sum `target` falls into, and how far into it. Rounding may leave none;
// then the last lane that has any, or -1.
__device__ __forceinline__ int pick_lane(float mass, float upto, float target, float& into) {
  unsigned hit = __ballot_sync(~0u, mass > 0.f && upto > target);
  unsigned any = __ballot_sync(~0u, mass > 0.f);
  into = target - (upto - mass);
  return hit ? __ffs(hit) - 1 : 31 - __clz(any);
}

// The first of N weights whose running sum goes beyond `into`; the last that is not zero if none does.
template <int N>
__device__ __forceinline__ int pick(const float (&w)[N], float into) {
  int found = 0;
  float sum = 0.f;
  bool done = false;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sum += w[j];
    if (!done && w[j] > 0.f) found = j;
    done = done || (w[j] > 0.f && sum > into);
  }
  return found;
}

__device__ __forceinline__ unsigned long long pack(float value, unsigned token, unsigned tag) {
  return static_cast<unsigned long long>(token | tag << TAG_SHIFT) << 32 | __float_as_uint(value);
}

__device__ __forceinline__ float value_of(unsigned long long x) {
  return __uint_as_float(static_cast<unsigned>(x));
}

__device__ __forceinline__ unsigned token_of(unsigned long long x) {
  return static_cast<unsigned>(x >> 32) & (TOKENS - 1);
}

__device__ __forceinline__ unsigned tag_of(unsigned long long x) {
  return static_cast<unsigned>(x >> 32) >> TAG_SHIFT;
}

struct Part {
  float value;     // log2 of the sum of exponentials; of a greedy request, the maximum
  unsigned token;  // drawn from the chunk; of a greedy request, the first of its likeliest
};

__device__ __forceinline__ Part condense(float (&x)[LANE_ELEMENTS], int begin, int lane, bool greedy,
                                         float u, float* share) {
  float m = NEG_INF;
#pragma unroll
  for (int j = 0; j < LANE_ELEMENTS; ++j) m = fmaxf(m, x[j]);
  m = warp_max(m);
  if (m == NEG_INF) return Part{NEG_INF, static_cast<unsigned>(begin)};
  if (greedy) {
    unsigned at = ~0u;
#pragma unroll
    for (int j = LANE_ELEMENTS - 1; j >= 0; --j)
      if (x[j] == m) at = token_at(begin, lane, j);
    return Part{m, __reduce_min_sync(~0u, at)};
  }
  // Rounded once: what the weights are relative to is what is added to their logarithm.
  float base = m * LOG2E, sum[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
  for (int j = 0; j < LANE_ELEMENTS; ++j) {
    x[j] = power2(fmaf(x[j], LOG2E, -base));
    sum[j % 4] += x[j];
  }
  float mine = (sum[0] + sum[1]) + (sum[2] + sum[3]), into;
  float upto = running_sum(mine, lane), total = __shfl_sync(~0u, upto, 31);
  int winner = max(pick_lane(mine, upto, u * total, into), 0);
  into = __shfl_sync(~0u, into, winner);
  // The winner's weights are shared out, LANE_ELEMENTS / 32 to a lane: so all lanes look for the token.
  if (lane == winner) {
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; ++j) share[j] = x[j];
  }
  __syncwarp();
  const int each = (LANE_ELEMENTS + 31) / 32;
  float w[each], part = 0.f;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    w[i] = lane * each + i < LANE_ELEMENTS ? share[lane * each + i] : 0.f;
    part += w[i];
  }
  float ignored, within = running_sum(part, lane);
  int holder = max(pick_lane(part, within, into, ignored), 0);
  int token = token_at(begin, winner, lane * each + pick(w, ignored));
  token = __shfl_sync(~0u, token, holder);
  return Part{base + logarithm2(total), static_cast<unsigned>(token)};
}

struct Shared {
  unsigned ticket;
  int accepted[MAX_ROWS];
  unsigned top[MAX_ROWS];  // the likeliest token, for greedy requests
  alignas(16) float share[WARPS][LANE_ELEMENTS];  // the weights of one lane of each warp
};

// One row, as the warp that finishes it holds it.
struct Row {
  float mass[PER_LANE];  // of this lane's chunks (neighbours), by the row's maximum
  unsigned token[PER_LANE];
  float rest, gone;      // all mass without the drafted token; the drafted token's own
  int draft;             // -1: none
  bool stands;
  unsigned top;
};

__device__ __forceinline__ Row weigh(const Args& a, int row, int draft, bool bonus, bool greedy,
                                     float u, unsigned tag, int lane) {
  Row r;
  int each = (a.chunks + 31) / 32, first = lane * each;
  const unsigned long long* parts = a.parts + static_cast<long long>(row) * a.chunks;
  r.draft = bonus || draft < 0 || draft >= a.vocab ? -1 : draft;
  unsigned long long part[PER_LANE], drafted;
  bool there;
  do {
    there = true;
    drafted = look(a.drafted + row);
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i)
      part[i] = i < each && first + i < a.chunks ? look(parts + first + i) : pack(NEG_INF, 0, tag);
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) there = there && tag_of(part[i]) == tag;
    there = there && (r.draft < 0 || tag_of(drafted) == tag);
#if MUTANT == 6
    break;  // does not wait for the other blocks: a race
#endif
  } while (!__all_sync(~0u, there));
  float value[PER_LANE], x = r.draft < 0 ? NEG_INF : value_of(drafted), best = NEG_INF;
#pragma unroll
  for (int i = 0; i < PER_LANE; ++i) {
    value[i] = value_of(part[i]);
    r.token[i] = token_of(part[i]);
    best = fmaxf(best, value[i]);
  }
  best = warp_max(best);
  if (greedy) {
    unsigned at = ~0u;
#pragma unroll
    for (int i = PER_LANE - 1; i >= 0; --i)
      if (i < each && first + i < a.chunks && value[i] == best) at = r.token[i];
    at = __reduce_min_sync(~0u, at);
    bool ahead = x > best || (x == best && static_cast<unsigned>(r.draft) < at);
    r.stands = r.draft >= 0 && ahead;
    r.top = r.stands ? r.draft : at;
    return r;
  }
  x *= LOG2E;
  float m = fmaxf(best, x), base = m == NEG_INF ? 0.f : m, sum = 0.f;
#pragma unroll
  for (int i = 0; i < PER_LANE; ++i) {
    r.mass[i] = power2(value[i] - base);
    sum += r.mass[i];
  }
  r.rest = warp_sum(sum);
  r.gone = power2(x - base);
  r.stands = r.draft >= 0 && r.gone / (r.gone + r.rest) >= u;
  r.top = 0;
  return r;
}

// The token that the uniform picks among the chunks'.
__device__ __forceinline__ unsigned sample(const Row& r, float u, bool whole, int lane) {
  if (whole && r.draft >= 0) {  // of mutants only: nothing is left out
    float target = u * (r.rest + r.gone);
    if (target < r.gone) return r.draft;
    u = (target - r.gone) / r.rest;
  }
  float mine = 0.f, into;
#pragma unroll
  for (int i = 0; i < PER_LANE; ++i) mine += r.mass[i];
  float upto = running_sum(mine, lane);
  int winner = pick_lane(mine, upto, u * __shfl_sync(~0u, upto, 31), into);
  int chosen = pick(r.mass, into);
  unsigned token = 0;
#pragma unroll
  for (int i = 0; i < PER_LANE; ++i)
    if (i == chosen) token = r.token[i];
  return winner < 0 ? 0 : __shfl_sync(~0u, token, winner);
}

__device__ __forceinline__ void finish(const Args& a, Shared& sh, int request, int base, int rows,
                                       bool greedy) {
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  unsigned tag = sh.ticket >> TAG_SHIFT;
  float u = a.sample_u[2 * request];
  int drafts = lane < rows ? a.draft_ids[base + lane] : -1;  // lane i has the draft of position i
  Row held;
  int holds = -1;
  for (int r = warp; r < rows; r += WARPS) {
#if MUTANT == 4
    float wanted = a.accept_u[base];  // stale: the first position's, everywhere
#else
    float wanted = a.accept_u[base + r];
#endif
    held = weigh(a, base + r, __shfl_sync(~0u, drafts, r), r == rows - 1, greedy, wanted, tag, lane);
    holds = r;
    if (lane == 0) {
      sh.accepted[r] = held.stands;
      sh.top[r] = held.top;
    }
  }
#if MUTANT != 8
  __syncthreads();
#endif
  unsigned stopped = __ballot_sync(~0u, lane >= rows - 1 || !sh.accepted[min(lane, MAX_ROWS - 1)]);
  int accepted = min(__ffs(stopped) - 1, rows - 1), r = accepted;
  bool whole = false;
#if MUTANT == 1
  if (accepted == rows - 1 && r > 0) r -= 1, whole = true;  // the bonus is drawn one row too early
#elif MUTANT == 2
  whole = true;  // the recovered token is drawn from the target itself
#endif
  if (warp != r % WARPS) return;
  unsigned token = sh.top[r];
  if (!greedy) {
    if (holds != r)
      held = weigh(a, base + r, __shfl_sync(~0u, drafts, r), r == rows - 1, greedy, 0.f, tag, lane);
    token = sample(held, u, whole, lane);
  }
  if (token >= static_cast<unsigned>(a.vocab)) token = 0;
  int* out = a.out + static_cast<long long>(request) * a.out_stride;
  for (int i = lane; i < a.out_stride; i += 32)
    out[i] = i < accepted ? drafts : i == accepted ? static_cast<int>(token) : -1;
#if MUTANT == 7
  if (lane == 0 && request == 0) out[-1] = token;  // a write one element to the left
#endif
  if (lane == 0) a.tickets[request] = (sh.ticket / TOKENS + 1) * TOKENS;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) verify(const __grid_constant__ Args a) {
  __shared__ Shared sh;
  int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  int row = blockIdx.y, chunk = blockIdx.x * WARPS + warp, begin = chunk * CHUNK;
  const elem* p = a.logits + row * a.stride;
  bool mine = chunk < a.chunks;
  wait_for_the_kernel_before();
  int request = ask(a.request_of + row), draft = ask(a.draft_ids + row);
  uint4 raw[VECTORS];
  if (mine) read(a, p, begin, lane, raw);
  // While that is on its way: what comes after needs these.
  unsigned ticket = tid == 0 ? take_ticket(a.tickets + request) : 0;
  int base = ask(a.cu_rows + request), rows = ask(a.cu_rows + request + 1) - base;
  float u = __int_as_float(ask(reinterpret_cast<const int*>(a.sample_u) + 2 * request + 1));
  bool greedy = ask(a.greedy + request);
  Part part;
  float drafted = NEG_INF;
  bool holds_draft = false;
  if (mine) {
    float x[LANE_ELEMENTS];
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; ++j) x[j] = element(raw[j / PER_VECTOR], j % PER_VECTOR);
    if (static_cast<unsigned>(draft - begin) < CHUNK) {
#pragma unroll
      for (int j = 0; j < LANE_ELEMENTS; ++j)
        if (draft == token_at(begin, lane, j)) {
          drafted = x[j];
          x[j] = NEG_INF;
          holds_draft = true;
        }
    }
    part = condense(x, begin, lane, greedy, u, sh.share[warp]);
#if MUTANT == 5
    // Out of bounds by one element, to the right of the row.
    if (chunk == a.chunks - 1 && lane == 0) {
      elem beyond = *static_cast<const volatile elem*>(p + a.vocab);
      if (beyond == static_cast<elem>(12345)) part.value = 0.f;
    }
#endif
  }
  if (tid == 0) sh.ticket = ticket;
  __syncthreads();
  unsigned tag = sh.ticket >> TAG_SHIFT;
  if (mine) {
    if (lane == 0)
      publish(a.parts + static_cast<long long>(row) * a.chunks + chunk,
              pack(part.value, part.token, tag));
    if (holds_draft) publish(a.drafted + row, pack(drafted, 0, tag));
  }
#if MUTANT == 6
  bool last = (sh.ticket & (TOKENS - 1)) == rows * gridDim.x / 2;
#else
  bool last = (sh.ticket & (TOKENS - 1)) == rows * gridDim.x - 1;
#endif
#if STOP
  if (last && tid == 0) a.tickets[request] = (sh.ticket / TOKENS + 1) * TOKENS;
#else
  if (last) finish(a, sh, request, base, rows, greedy);
#endif
}
