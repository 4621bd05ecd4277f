/* A user-defined algorithm in JSON: an all-reduce in which rank 0 sums the inputs and sends the
 * result to all. hocket verifies it before it runs. Run: hocket-run -n 3 example_08_own_plan */
#include <hocket/hocket.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call)                                               \
  if ((call) != hocketSuccess) {                                  \
    fprintf(stderr, "%s: %s\n", #call, hocketGetLastError(NULL)); \
    return 1;                                                     \
  }

/* Rank r of p; in, out and s are the input, the output and scratch memory (docs/PLANS.md). Input
 * and output may be the same memory, so lane 'result' awaits the end of the send in lane 'to 0'. */
static const char plan[] =
    "{'name': 'star', 'collective': 'all-reduce', 'ranks': 'p >= 2', 'links': 'messages',"
    " 'scratch_blocks': 'p - 1', 'single_chunk': true, 'lanes': ["
    "  {'name': 'to 0', 'when': 'r > 0', 'of': 'input', 'block': 0, 'steps': ["
    "    {'send': 'in[0]', 'to': 0, 'tag': 0}]},"
    "  {'name': 'collect', 'when': 'r == 0', 'of': 'input', 'block': 0, 'instances': 'p - 1',"
    "   'steps': [{'recv': 's[i]', 'from': 'i + 1', 'tag': 0}]},"
    "  {'name': 'sum', 'when': 'r == 0', 'of': 'input', 'block': 0, 'steps': ["
    "    {'await': 'collect', 'instance': 'j', 'repeat': 'p - 1'},"
    "    {'finish': ['in[0]', 's[j]{j<p-1}'], 'into': 'out[0]'}]},"
    "  {'name': 'from 0', 'when': 'r == 0', 'of': 'output', 'block': 0, 'instances': 'p - 1',"
    "   'steps': [{'await': 'sum'}, {'send': 'out[0]', 'to': 'i + 1', 'tag': 1}]},"
    "  {'name': 'result', 'when': 'r > 0', 'of': 'output', 'block': 0, 'steps': ["
    "    {'await': 'to 0'}, {'recv': 'out[0]', 'from': 0, 'tag': 1}]}]}";

/* JSON has double quotes, which are hard to read in C. */
static const char* json(char* text) {
  strcpy(text, plan);
  for (char* c = text; *c != 0; ++c) {
    if (*c == '\'') *c = '"';
  }
  return text;
}

int main(void) {
  hocketComm_t comm;
  CHECK(hocketCommInitFromEnv(&comm, NULL));
  int rank, ranks;
  CHECK(hocketCommUserRank(comm, &rank));
  CHECK(hocketCommCount(comm, &ranks));

  char text[sizeof plan];
  CHECK(hocketCommLoadPlan(comm, json(text), 1)); /* 1: it runs in every call that it can serve */
  enum { count = 1000 };
  float x[count];
  for (int i = 0; i < count; ++i) x[i] = (float)(rank + i);
  CHECK(hocketAllReduce(x, x, count, hocketFloat32, hocketSum, comm, NULL));
  const char *algorithm, *transport;
  CHECK(hocketCommLastAlgorithm(comm, &algorithm, &transport));
  printf("rank %d of %d: '%s' over %s gave %g\n", rank, ranks, algorithm, transport, x[0]);
  int right = strcmp(algorithm, "star") == 0;
  for (int i = 0; i < count; ++i) {
    right = right && x[i] == (float)(ranks * (ranks - 1) / 2 + ranks * i);
  }

  /* hocket refuses the plan without that await: the result could overwrite data that is still being
   * sent. */
  json(text);
  memcpy(strstr(text, "star"), "race", 4);
  char* const await = strstr(text, "{\"await\": \"to 0\"}, ");
  memset(await, ' ', strlen("{\"await\": \"to 0\"}, "));
  const hocketResult_t refused = hocketCommLoadPlan(comm, text, 1);
  if (rank == 0) printf("as it should be: %s\n", hocketGetLastError(comm));
  right = right && refused == hocketInvalidArgument;
  CHECK(hocketCommDestroy(comm));
  return right ? 0 : 1;
}
