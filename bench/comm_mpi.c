/* The rival's side of compare_comm.py: times MPI collectives as `tandem bench comm` times its own.
 * Every timed call starts from a spin barrier in a file that the ranks map, so one rank's lateness
 * is not another one's time; a round's figure is the median over its calls of the slowest rank's
 * time. Ranks are bound to cores by their number.
 *   mpicc -O2 -o comm_mpi comm_mpi.c
 *   mpiexec -n 2 ./comm_mpi FILE in_place|out_of_place SECONDS ROUNDS OPERATION BYTES ...
 * Prints "OPERATION BYTES MICROSECONDS" per round. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "rival_buffers.h"

static int rank, size;
static struct line { _Alignas(64) atomic_uint value; } * lines;
static unsigned round_number;

static void start_line(void) {
  atomic_store(&lines[rank].value, ++round_number);
  for (int i = 0; i < size; ++i)
    while ((int)(atomic_load_explicit(&lines[i].value, memory_order_acquire) - round_number) < 0)
      __builtin_ia32_pause();
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static float *in, *out;

static void call(const char* operation, int count, int in_place) {
  if (!strcmp(operation, "all_reduce"))
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(operation, "broadcast"))
    MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else if (!strcmp(operation, "reduce"))
    MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  else if (!strcmp(operation, "all_gather"))
    MPI_Allgather(in, count / size, MPI_FLOAT, out, count / size, MPI_FLOAT, MPI_COMM_WORLD);
  else if (!strcmp(operation, "reduce_scatter"))
    MPI_Reduce_scatter_block(in, out, count / size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(operation, "all_to_all"))
    MPI_Alltoall(in, count / size, MPI_FLOAT, out, count / size, MPI_FLOAT, MPI_COMM_WORLD);
  else if (!strcmp(operation, "gather"))
    MPI_Gather(in, count / size, MPI_FLOAT, out, count / size, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else if (!strcmp(operation, "barrier"))
    MPI_Barrier(MPI_COMM_WORLD);
  else
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* On the operation's own way once, before anything is timed. */
static void verify(const char* operation, int count, int in_place) {
  rival_fill(rank, (size_t)count, in, out);
  call(operation, count, in_place);
  if (!rival_right(operation, rank, size, (size_t)count, out)) MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  /* Before MPI starts: what a library decides by cores it decides as in a job with one core per
   * rank. */
  const char* names[] = {"PMI_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"};
  for (int i = 0; i < 2; ++i) {
    const char* text = getenv(names[i]);
    if (text == NULL) continue;
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(atoi(text) % sysconf(_SC_NPROCESSORS_ONLN), &mask);
    sched_setaffinity(0, sizeof mask, &mask);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int file = open(argv[1], O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, 4096) != 0) MPI_Abort(MPI_COMM_WORLD, 4);
  lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int in_place = !strcmp(argv[2], "in_place");
  const double seconds = atof(argv[3]);
  const int rounds = atoi(argv[4]);
  const char* operation = argv[5];
  MPI_Barrier(MPI_COMM_WORLD);
  for (int a = 6; a < argc; ++a) {
    const size_t bytes = strtoull(argv[a], NULL, 10);
    const int count = (int)(bytes / sizeof(float));
    in = rival_map(bytes);
    if (in == NULL) MPI_Abort(MPI_COMM_WORLD, 4);
    out = rival_out(in, bytes, in_place);
    verify(operation, count, in_place);
    memset(in, 0, bytes);
    memset(out, 0, bytes);
    double trial[5];
    for (int i = 0; i < 5; ++i) {
      start_line();
      const double start = now();
      call(operation, count, in_place);
      trial[i] = now() - start;
    }
    qsort(trial, 5, sizeof *trial, by_value);
    int iterations = (int)(seconds / (trial[2] > 1e-7 ? trial[2] : 1e-7));
    iterations = iterations < 5 ? 5 : iterations > 2000 ? 2000 : iterations;
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double* times = malloc(sizeof(double) * (size_t)iterations);
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < iterations; ++i) {
        start_line();
        const double start = now();
        call(operation, count, in_place);
        times[i] = now() - start;
      }
      MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      qsort(times, (size_t)iterations, sizeof *times, by_value);
      if (rank == 0) printf("%s %zu %.3f\n", operation, bytes, times[iterations / 2] * 1e6);
    }
    free(times);
    rival_unmap(in, bytes);
  }
  if (rank == 0) unlink(argv[1]);
  MPI_Finalize();
  return 0;
}
