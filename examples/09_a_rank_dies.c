/* A rank dies in the middle of the work. The other ranks learn which rank died, make a communicator
 * without it, and go on. Run: hocket-run -n 4 example_09_a_rank_dies */
#include <hocket/hocket.h>
#include <stdio.h>
#include <unistd.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

enum { dying_rank = 2, steps = 10, last_step_of_the_dying = 5 };

/* One step of the work: the number of ranks that took part. */
static hocketResult_t step(hocketComm_t comm, int* workers) {
  *workers = 1;
  return hocketAllReduce(workers, workers, 1, hocketInt32, hocketSum, comm, NULL);
}

/* Makes a communicator without the dead rank. The ranks above it get the next lower number. */
static int make_smaller(hocketComm_t* comm, int* rank, int* ranks, const hocketUniqueId* id) {
  int dead;
  CHECK(hocketCommGetCulprit(*comm, &dead));
  printf("rank %d: rank %d is dead: %s\n", *rank, dead, hocketGetLastError(*comm));
  if (dead != dying_rank) return 1;
  CHECK(hocketCommDestroy(*comm));
  *ranks -= 1;
  if (*rank > dead) *rank -= 1;
  CHECK(hocketCommInitRank(comm, *ranks, *id, *rank));
  return 0;
}

int main(void) {
  hocketComm_t comm;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  int rank, ranks;
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));
  if (ranks <= dying_rank) return 1;

  /* The id of the communicator after an error. It is sent now, because no communicator is left
   * then. The rank that made the id must be alive then. If any rank may die, let every rank make an
   * id, and use the id of a rank that is alive. */
  hocketUniqueId spare;
  if (rank == 0) CHECK(hocketGetUniqueId(&spare));
  CHECK(hocketBcast(&spare, sizeof spare, hocketChar, 0, comm, NULL));

  const int first_rank = rank, first_ranks = ranks;
  int errors = 0, right = 1;
  for (int i = 0; i < steps; ++i) {
    if (first_rank == dying_rank && i > last_step_of_the_dying) _exit(0); /* does not finalize */
    int workers;
    const hocketResult_t result = step(comm, &workers);
    if (result == hocketSuccess) {
      right = right && workers == (i > last_step_of_the_dying ? first_ranks - 1 : first_ranks);
    } else if (result == hocketRemoteError && ++errors == 1) {
      if (make_smaller(&comm, &rank, &ranks, &spare) != 0) return 1;
      --i; /* repeat the step that failed */
    } else {
      fprintf(stderr, "%s\n", hocketGetLastError(comm));
      return 1;
    }
  }
  printf("rank %d of %d, which was %d of %d: all %d steps are done\n", rank, ranks, first_rank,
         first_ranks, steps);
  CHECK(hocketCommDestroy(comm));
  return right && errors == 1 ? 0 : 1;
}
