/* What the rivals of compare_comm.py share, in C for whatever compiler an MPI wraps: where the
 * buffers of a call lie, and what must be in them afterwards. Both are as in `tandem bench comm`:
 * one mapping of plain 4 KiB pages, `out` behind `in` with at least one byte between them, on a
 * multiple of 64; in place `out` is all there is. Element i of rank r is (i + r) mod 7, so that
 * every element identifies its sender and sums are exact. */
#ifndef TANDEM_BENCH_RIVAL_BUFFERS_H
#define TANDEM_BENCH_RIVAL_BUFFERS_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static inline size_t rival_room_of(size_t bytes) { return (bytes + 64) / 64 * 64; }

/* Not the library's own allocator, which may hand out huge pages: plain pages for all. NULL: no
 * memory. */
static inline float* rival_map(size_t bytes) {
  void* data = mmap(NULL, 2 * rival_room_of(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? NULL : (float*)data;
}

static inline void rival_unmap(float* in, size_t bytes) { munmap(in, 2 * rival_room_of(bytes)); }

static inline float* rival_out(float* in, size_t bytes, int in_place) {
  return in_place ? in : in + rival_room_of(bytes) / sizeof(float);
}

static inline float rival_given(int rank, size_t i) { return (float)((i + (size_t)rank) % 7); }

static inline float rival_sum(int size, size_t i) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += rival_given(r, i);
  return sum;
}

/* Numbers of `rank` in `in`, and in `out` what no result has. */
static inline void rival_fill(int rank, size_t count, float* in, float* out) {
  if (out != in)
    for (size_t i = 0; i < count; ++i) out[i] = -1;
  for (size_t i = 0; i < count; ++i) in[i] = rival_given(rank, i);
}

/* How many elements of `out` the operation writes on `rank`; `count` is that of the larger buffer.
 * */
static inline size_t rival_results(const char* operation, int rank, int size, size_t count) {
  if (!strcmp(operation, "barrier")) return 0;
  if ((!strcmp(operation, "reduce") || !strcmp(operation, "gather")) && rank != 0) return 0;
  if (!strcmp(operation, "reduce_scatter")) return count / (size_t)size;
  if (!strcmp(operation, "all_reduce") || !strcmp(operation, "reduce") ||
      !strcmp(operation, "broadcast"))
    return count;
  return count / (size_t)size * (size_t)size;
}

static inline float rival_expected(const char* operation, int rank, int size, size_t count,
                                   size_t i) {
  const size_t part = count / (size_t)size;
  if (!strcmp(operation, "broadcast")) return rival_given(0, i);
  if (!strcmp(operation, "all_gather") || !strcmp(operation, "gather"))
    return rival_given((int)(i / part), i % part);
  if (!strcmp(operation, "all_to_all"))
    return rival_given((int)(i / part), (size_t)rank * part + i % part);
  if (!strcmp(operation, "reduce_scatter")) return rival_sum(size, (size_t)rank * part + i);
  return rival_sum(size, i);
}

/* 1 if every element is right; else names the wrong one on standard error. */
static inline int rival_right(const char* operation, int rank, int size, size_t count,
                              const float* out) {
  const size_t results = rival_results(operation, rank, size, count);
  for (size_t i = 0; i < results; ++i) {
    const float expected = rival_expected(operation, rank, size, count, i);
    if (out[i] == expected) continue;
    fprintf(stderr, "%s of %zu: rank %d has %g at %zu, expected %g\n", operation, count, rank,
            (double)out[i], i, (double)expected);
    return 0;
  }
  return 1;
}

#endif
