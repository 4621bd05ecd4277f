// The measurement, the same for all backends. It is a C function, so that gloo_rank.py can call it
// by name.
#pragma once

extern "C" [[gnu::visibility("default")]] int peer_main(int argc, char** argv);
