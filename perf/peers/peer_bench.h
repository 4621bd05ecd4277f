// The measurement that every backend runs; a C function, so that gloo_rank.py finds it by its name.
#pragma once

extern "C" int peer_main(int argc, char** argv);
