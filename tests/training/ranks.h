// Ranks of a job, each a thread of the test program.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <hocket/hocket.hpp>
#include <string>
#include <thread>
#include <vector>

namespace tests {

/// Runs body(communicator) on every rank and waits. An exception that leaves a body fails the test.
template <typename Body>
void run_ranks(int ranks, Body body) {
  std::vector<hocket::Communicator> comms = hocket::Communicator::join_all(ranks);
  std::vector<std::thread> threads;
  for (hocket::Communicator& comm : comms) {
    threads.emplace_back([&body, &comm] {
      try {
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << comm.rank() << ": " << error.what();
        comm.abort();  // the other ranks must not wait for this one
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The message of the error that the action throws; empty: it throws none of this type.
template <typename Error, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace tests
