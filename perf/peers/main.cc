#include "peer_bench.h"

int main(int argc, char** argv) { return peer_main(argc, argv); }
