// hocket-train-gpt: trains a small GPT over the bytes of a text, on all ranks of a job.
#include <cstdio>
#include <exception>
#include <hocket/hocket.hpp>
#include <optional>
#include <string>

#include "agree.h"
#include "options.h"
#include "stop.h"
#include "trainer.h"

namespace hocket::gpt {
namespace {

void complain(int rank, const char* text, const char* more = "") {
  std::fflush(stdout);
  std::fprintf(stderr, "hocket-train-gpt: rank %d: %s%s\n", rank, text, more);
}

/// The rank that caused the error.
std::string blame(const Error& error) {
  return error.culprit() < 0 ? "" : " (caused by rank " + std::to_string(error.culprit()) + ")";
}

int run_as_rank(const Options& options, const std::optional<int>& parsed, const std::string& text,
                Communicator& comm) {
  const int rank = comm.rank();
  try {
    if (parsed == 0) {
      if (rank == 0) std::fputs(text.c_str(), stdout);
      return 0;
    }
    agree(comm, parsed ? text : "", parsed.value_or(0));
    watch_signals();
    Trainer(options, comm).run();
    return 0;
  } catch (const Refused& refusal) {  // all ranks know it
    std::string line = refusal.what();
    if (!line.starts_with("hocket-train-gpt: ")) line = "hocket-train-gpt: " + line + "\n";
    if (rank == 0) std::fputs(line.c_str(), stderr);
    return refusal.status();
  } catch (const Error& error) {
    complain(rank, error.what(), blame(error).c_str());
  } catch (const std::exception& error) {
    complain(rank, error.what());
    comm.abort();  // the other ranks must not wait for this one
  }
  return 1;
}

int main_of(int argc, char** argv) {
  Options options;
  std::string text;
  const std::optional<int> parsed = parse_options(argc, argv, &options, &text);
  try {
    auto comm = Communicator::from_environment({.name = "training"});
    return run_as_rank(options, parsed, text, comm);
  } catch (const Error& error) {
    std::fprintf(stderr, "hocket-train-gpt: cannot join the job: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace hocket::gpt

int main(int argc, char** argv) { return hocket::gpt::main_of(argc, argv); }
