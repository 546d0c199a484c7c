// A grammar's bitmask laid over logits: token t of row r stays when bit t % 32 of word t / 32 is set.
// MUTANT 3 ignores the last, partly filled word.

#ifndef MUTANT
#define MUTANT 0
#endif

extern "C" __global__ void apply_mask(float* logits, const int* mask, long long stride, int words,
                                      int vocab) {
  int row = blockIdx.y;
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= vocab) return;
#if MUTANT == 3
  if (t >= vocab / 32 * 32) return;
#endif
  unsigned word = static_cast<unsigned>(mask[row * words + t / 32]);
  if (!(word >> (t % 32) & 1u)) logits[row * stride + t] = -__int_as_float(0x7f800000);
}
