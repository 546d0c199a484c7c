// The verification of drafted tokens in one pass over the target's logits: softmax statistics of
// every row, the acceptance chain of every request, and the recovered or bonus token.
//
// One block reads one slice of one row and leaves three numbers a warp (maximum, sum of exponentials,
// where the maximum is). The block that finishes a request last walks its chain and draws the token
// by inverting the cumulative distribution, reading again only the one slice the draw falls into.
//
// ELEM: 0 float, 1 bfloat16. MUTANT: 0 the kernel; others are wrong on purpose (see mutants.py).

#ifndef ELEM
#define ELEM 0
#endif
#ifndef MUTANT
#define MUTANT 0
#endif

#define WARPS 8
#define THREADS (WARPS * 32)
#define UNROLL 4
#define MAX_ROWS 16
#define LOG2E 1.4426950408889634f
#define NEG_INF (-__int_as_float(0x7f800000))

#if ELEM == 1
typedef unsigned short elem;
#define PER_VECTOR 8
#else
typedef float elem;
#define PER_VECTOR 4
#endif

struct Vector {
  float x[PER_VECTOR];
};

__device__ __forceinline__ float widen(elem e) {
#if ELEM == 1
  return __uint_as_float(static_cast<unsigned>(e) << 16);
#else
  return e;
#endif
}

__device__ __forceinline__ uint4 fetch(const elem* p) {
  uint4 raw;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(p));
  return raw;
}

__device__ __forceinline__ Vector unpack(uint4 raw) {
  Vector v;
#if ELEM == 1
  unsigned w[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.x[2 * i] = __uint_as_float(w[i] << 16);
    v.x[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
#else
  v.x[0] = __uint_as_float(raw.x);
  v.x[1] = __uint_as_float(raw.y);
  v.x[2] = __uint_as_float(raw.z);
  v.x[3] = __uint_as_float(raw.w);
#endif
  return v;
}

__device__ __forceinline__ float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x - m), with m = -inf meaning that nothing is there.
__device__ __forceinline__ float weight(float x, float m) {
  return m == NEG_INF ? 0.f : power2((x - m) * LOG2E);
}

struct Stats {
  float m, s;
  int at;
};

__device__ __forceinline__ Stats merge(Stats a, Stats b) {
  Stats r;
  bool take_b = b.m > a.m || (b.m == a.m && b.at < a.at);
  r.m = take_b ? b.m : a.m;
  r.at = take_b ? b.at : a.at;
  r.s = a.s * weight(a.m, r.m) + b.s * weight(b.m, r.m);
  return r;
}

__device__ __forceinline__ Stats merge_warp(Stats a) {
#pragma unroll
  for (int d = 16; d; d >>= 1) {
    Stats b;
    b.m = __shfl_xor_sync(~0u, a.m, d);
    b.s = __shfl_xor_sync(~0u, a.s, d);
    b.at = __shfl_xor_sync(~0u, a.at, d);
    a = merge(a, b);
  }
  return a;
}

template <int N>
__device__ __forceinline__ void absorb(Stats& a, const Vector (&v)[N], const int (&first)[N]) {
  float c = NEG_INF;
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int i = 0; i < PER_VECTOR; ++i) c = fmaxf(c, v[j].x[i]);
  if (c > a.m) {
    a.s *= weight(a.m, c);
    a.m = c;
#pragma unroll
    for (int j = N - 1; j >= 0; --j)
#pragma unroll
      for (int i = PER_VECTOR - 1; i >= 0; --i)
        if (v[j].x[i] == c) a.at = first[j] + i;
  }
  float base = a.m == NEG_INF ? 0.f : a.m * LOG2E;
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < N; ++j)
#pragma unroll
    for (int i = 0; i < PER_VECTOR; ++i) sum += power2(fmaf(v[j].x[i], LOG2E, -base));
  a.s += sum;
}

__device__ __forceinline__ void absorb_one(Stats& a, float x, int at) {
  if (x > a.m) {
    a.s *= weight(a.m, x);
    a.m = x;
    a.at = at;
  }
  a.s += weight(x, a.m);
}

struct Args {
  const elem* logits;       // [rows, vocab], rows `stride` elements apart
  const int* cu_rows;       // [requests + 1]: where each request's rows begin
  const int* request_of;    // [rows]
  const int* draft_ids;     // [rows - requests]; -1 is never accepted
  const float* accept_u;    // [rows - requests]
  const float* sample_u;    // [requests]
  const unsigned char* greedy;  // [requests]
  int* out;                 // [requests, out_stride], -1 where nothing was emitted
  float* part_m;            // [rows, slices * WARPS]
  float* part_s;
  int* part_at;
  int* finished;            // [requests], zero before and after
  long long stride;
  int vocab, out_stride, slices, aligned;
};

// The elements of segment `seg` (a warp's share of a slice) are [first, last).
__device__ __forceinline__ void bounds(const Args& a, int seg, int& first, int& last) {
  int vectors = a.vocab / PER_VECTOR;
  int segments = a.slices * WARPS;
  int each = (vectors + segments - 1) / segments;
  first = min(seg * each, vectors) * PER_VECTOR;
  last = seg == segments - 1 ? a.vocab : min((seg + 1) * each, vectors) * PER_VECTOR;
}

__device__ __forceinline__ Stats scan_segment(const Args& a, const elem* row, int seg, int lane) {
  int first, last;
  bounds(a, seg, first, last);
  Stats mine = {NEG_INF, 0.f, 0x7fffffff};
  int at = first;
  if (a.aligned) {
    int whole = first + (last - first) / PER_VECTOR * PER_VECTOR;
    const int step = 32 * PER_VECTOR;
    int p = first + lane * PER_VECTOR;
    for (; p + (UNROLL - 1) * step < whole; p += UNROLL * step) {
      uint4 raw[UNROLL];
#pragma unroll
      for (int j = 0; j < UNROLL; ++j) raw[j] = fetch(row + p + j * step);
      Vector v[UNROLL];
      int begin[UNROLL];
#pragma unroll
      for (int j = 0; j < UNROLL; ++j) {
        v[j] = unpack(raw[j]);
        begin[j] = p + j * step;
      }
      absorb<UNROLL>(mine, v, begin);
    }
    for (; p < whole; p += step) {
      Vector v[1] = {unpack(fetch(row + p))};
      int begin[1] = {p};
      absorb<1>(mine, v, begin);
    }
    at = whole;
  }
  for (int i = at + lane; i < last; i += 32) absorb_one(mine, widen(row[i]), i);
#if MUTANT == 5
  // Out of bounds by one element, to the right of the last row.
  if (seg == a.slices * WARPS - 1 && lane == 0) absorb_one(mine, widen(row[last]) * 0.f + NEG_INF, last);
#endif
  return merge_warp(mine);
}

struct Shared {
  Stats row[MAX_ROWS];
  float drafted[MAX_ROWS];  // the logit of each drafted token
  int accepted[MAX_ROWS];
  float ends[WARPS];
  float before;  // mass ahead of the winner
  int winner, fallback;
};

// Which thread's share of the running sum the target falls into; rounding may leave none, then the
// last thread that has any mass. Leaves the winner and the mass ahead of it, and returns the total.
__device__ float draw(Shared& sh, float mass, float u, float total_or_none, float& target) {
  int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  float upto = mass;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    float other = __shfl_up_sync(~0u, upto, d);
    if (lane >= d) upto += other;
  }
  if (lane == 31) sh.ends[warp] = upto;
  if (tid == 0) sh.winner = -1, sh.fallback = -1;
  __syncthreads();
  float ahead = 0.f, total = 0.f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w < warp) ahead += sh.ends[w];
    total += sh.ends[w];
  }
  upto += ahead;
  float before = upto - mass;
  if (total_or_none < 0.f) target = u * total;
  if (mass > 0.f && upto > target) atomicMin(reinterpret_cast<unsigned*>(&sh.winner), tid);
  if (mass > 0.f) atomicMax(&sh.fallback, tid);
  __syncthreads();
  int winner = sh.winner >= 0 ? sh.winner : sh.fallback;
  if (tid == winner) sh.before = before;
  __syncthreads();
  if (tid == 0) sh.winner = winner;
  __syncthreads();
  return total;
}

// The statistics of every row of the request, and which of its drafts would stand by themselves.
// Everything a row needs is asked for before any of it is used: this is the part that nothing hides.
__device__ void gather(const Args& a, Shared& sh, int request, int base, int rows) {
  int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int segments = a.slices * WARPS;
  bool greedy = a.greedy[request];
  for (int r = warp; r < rows; r += WARPS) {
    bool drafted = r < rows - 1;
    int d = drafted ? a.draft_ids[base - request + r] : -1;
#if MUTANT == 4
    float u = drafted ? a.accept_u[base - request] : 0.f;  // stale: the first position's, everywhere
#else
    float u = drafted ? a.accept_u[base - request + r] : 0.f;
#endif
    bool legal = d >= 0 && d < a.vocab;
    Stats s = {NEG_INF, 0.f, 0x7fffffff};
    long long at = static_cast<long long>(base + r) * segments;
#pragma unroll 4
    for (int i = lane; i < segments; i += 32)
      s = merge(s, Stats{__ldcg(a.part_m + at + i), __ldcg(a.part_s + at + i),
                         __ldcg(a.part_at + at + i)});
    float x = legal ? widen(a.logits[(base + r) * a.stride + d]) : NEG_INF;
    s = merge_warp(s);
    if (lane == 0) {
      sh.row[r] = s;
      sh.drafted[r] = x;
      sh.accepted[r] = legal && (greedy ? d == s.at : weight(x, s.m) / s.s >= u);
    }
  }
}

// The token of `row` that the uniform picks: first the segment, then the element in it.
__device__ int sample(const Args& a, Shared& sh, int row, float m, int banned, float gone, float u) {
  int tid = threadIdx.x;
  int segments = a.slices * WARPS;
  int each = (segments + THREADS - 1) / THREADS;
  long long at = static_cast<long long>(row) * segments;
  float mass = 0.f, target = 0.f;
  for (int i = tid * each; i < min((tid + 1) * each, segments); ++i) {
    int first, last;
    bounds(a, i, first, last);
    float w = __ldcg(a.part_s + at + i) * weight(__ldcg(a.part_m + at + i), m);
    mass += banned >= first && banned < last ? fmaxf(w - gone, 0.f) : w;
  }
  draw(sh, mass, u, -1.f, target);
  if (sh.winner < 0) return 0;
  int first, last, ignored;
  bounds(a, sh.winner * each, first, ignored);
  bounds(a, min((sh.winner + 1) * each, segments) - 1, ignored, last);
  target = fmaxf(target - sh.before, 0.f);
  __syncthreads();
  const elem* p = a.logits + row * a.stride;
  int share = (last - first + THREADS - 1) / THREADS;
  share = (share + PER_VECTOR - 1) / PER_VECTOR * PER_VECTOR;
  int lo = first + tid * share, hi = min(lo + share, last);
  mass = 0.f;
#pragma unroll 8
  for (int i = lo; i < hi; ++i) mass += i == banned ? 0.f : weight(widen(p[i]), m);
  draw(sh, mass, 0.f, 1.f, target);
  if (tid == sh.winner) {
    float run = sh.before;
    int pick = -1;
    for (int i = lo; i < hi; ++i) {
      float w = i == banned ? 0.f : weight(widen(p[i]), m);
      if (w > 0.f) {
        pick = i;
        run += w;
        if (run > target) break;
      }
    }
    sh.fallback = pick;
  }
  __syncthreads();
  return sh.winner < 0 ? 0 : sh.fallback;
}

__device__ void finish(const Args& a, Shared& sh, int request, int base, int rows) {
  int tid = threadIdx.x, lane = tid & 31;
  gather(a, sh, request, base, rows);
  float u = a.sample_u[request];
  bool greedy = a.greedy[request];
  __syncthreads();
  unsigned stopped = __ballot_sync(~0u, lane >= rows - 1 || !sh.accepted[min(lane, MAX_ROWS - 1)]);
  int accepted = min(__ffs(stopped) - 1, rows - 1);
  bool bonus = accepted == rows - 1;
  int r = accepted;
#if MUTANT == 1
  if (bonus && r > 0) r -= 1;  // the bonus token is drawn one row too early
#endif
  int token = sh.row[r].at;
  if (!greedy) {
    int banned = bonus ? -1 : a.draft_ids[base - request + accepted];
#if MUTANT == 2
    banned = -1;  // the recovered token is drawn from the target itself
#endif
    float m = sh.row[r].m;
    float gone = banned >= 0 ? weight(sh.drafted[r], m) : 0.f;
    token = sample(a, sh, base + r, m, banned, gone, u);
  }
  if (token < 0 || token >= a.vocab) token = 0;
  int* out = a.out + static_cast<long long>(request) * a.out_stride;
  for (int i = tid; i < a.out_stride; i += THREADS)
    out[i] = i < accepted ? a.draft_ids[base - request + i] : (i == accepted ? token : -1);
#if MUTANT == 7
  if (tid == 0 && request == 0) out[-1] = token;  // a write one element to the left
#endif
  if (tid == 0) a.finished[request] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS) verify(Args a) {
  __shared__ Shared sh;
  __shared__ int last;
  int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
  int slice = blockIdx.x, row = blockIdx.y;
  int request = a.request_of[row];
  int base = a.cu_rows[request];
  int rows = a.cu_rows[request + 1] - base;
  int seg = slice * WARPS + warp;
  Stats s = scan_segment(a, a.logits + row * a.stride, seg, lane);
  if (lane == 0) {
    long long at = static_cast<long long>(row) * a.slices * WARPS + seg;
    a.part_m[at] = s.m;
    a.part_s[at] = s.s;
    a.part_at[at] = s.at;
    __threadfence();
  }
  __syncthreads();
  if (tid == 0) {
    int before = atomicAdd(a.finished + request, 1);
#if MUTANT == 6
    last = before == (rows * a.slices) / 2;  // does not wait for the other blocks: a race
#else
    last = before == rows * a.slices - 1;
#endif
    __threadfence();
  }
  __syncthreads();
  if (last) finish(a, sh, request, base, rows);
}
