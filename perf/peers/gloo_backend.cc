// Gloo, TCP transport (it has no other for CPU memory), ranks from PEER_RANK and PEER_RANKS,
// meeting through files in the run's directory. PEER_GLOO_ALGORITHM=ring or bcube chooses one of
// its two algorithms.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include "backend.h"

namespace hocket::peers {
namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
std::uint32_t next_tag = 0;

int number_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : -1;
}

gloo::AllreduceOptions::Algorithm algorithm() {
  const char* text = std::getenv("PEER_GLOO_ALGORITHM");
  return text != nullptr && std::string(text) == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                         : gloo::AllreduceOptions::Algorithm::RING;
}

}  // namespace

const char* backend_name() {
  return algorithm() == gloo::AllreduceOptions::Algorithm::BCUBE ? "gloo-bcube" : "gloo-ring";
}

bool backend_start(const std::string& interface_address, const std::string& rendezvous,
                   std::string* error) {
  const int rank = number_from("PEER_RANK");
  const int ranks = number_from("PEER_RANKS");
  if (rank < 0 || ranks < 1 || rank >= ranks) {
    *error = "PEER_RANK and PEER_RANKS do not name a rank";
    return false;
  }
  try {
    gloo::transport::tcp::attr attr;
    attr.hostname = interface_address.empty() ? "127.0.0.1" : interface_address;
    context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    gloo::rendezvous::FileStore store(rendezvous);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attr);
    context->connectFullMesh(store, device);
  } catch (const std::exception& problem) {
    *error = problem.what();
    return false;
  }
  return true;
}

int backend_rank() { return context->rank; }
int backend_ranks() { return context->size; }

void* backend_allocate(std::size_t bytes, bool) {
  return std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
}

bool backend_all_reduce(const float* in, float* out, std::size_t count, std::string* error) {
  try {
    gloo::AllreduceOptions options(context);
    options.setAlgorithm(algorithm());
    options.setInput(const_cast<float*>(in), count);
    options.setOutput(out, count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    options.setTag(next_tag++);
    gloo::allreduce(options);
  } catch (const std::exception& problem) {
    *error = problem.what();
    return false;
  }
  return true;
}

void backend_stop() { context.reset(); }

}  // namespace hocket::peers
