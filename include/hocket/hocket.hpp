// hocket for C++20: a header-only interface over hocket.h, whose comments say what each call does.
//
//   #include <hocket/hocket.hpp>
//
//   auto comm = hocket::Communicator::from_environment({.deadline = std::chrono::seconds(30)});
//   std::vector<float> gradients(1024, 1.0f), all(1024 * comm.ranks());
//   comm.all_reduce(gradients, hocketSum);                    // in place
//   comm.all_gather(gradients, all);                          // sizes are checked
//   int most = comm.all_reduce(comm.rank(), hocketMax);       // of single values
//   hocket::PreMulSum half(comm, 0.5f);                       // each rank's own factor
//   comm.all_reduce(gradients, half);
//   std::vector<std::size_t> counts = ...;                    // of each rank
//   comm.all_gather(mine, all, counts);                       // blocks of different counts
//
//   auto stream = hocket::Stream::create();                   // runs while the caller goes on
//   comm.all_reduce(gradients, hocketSum, stream);
//   hocket::Event reduced = stream.record();                  // a future
//   compute();
//   reduced.wait();                                           // throws the operation's error
//
//   hocket::group([&] {                                       // begun together, or not at all
//     comm.send(gradients, right);
//     comm.recv(all, left);
//   });
//
// Buffers are contiguous ranges: std::vector, std::array, std::span, arrays, hocket::Memory. Local
// peers access hocket::Memory, and containers with hocket::allocator, without a copy. The operators
// of hocket compute with an Element, such as float; calls without an operator, and
// hocket::Operator, also take other trivially copyable types, such as structs. Sizes and counts are
// in elements.
//
// Errors are exceptions: hocket::Error, with a subclass for each result, the C function that failed
// and the rank that caused the error. The C library throws nothing.
//
// Lifetimes. Each object frees its handle, and may be moved but not copied. Buffers belong to the
// caller, who keeps them alive and untouched until the operations that use them have ended. The
// destructors of a communicator and of a stream wait for the operations on it. Events, Memory and
// Registrations may outlive communicators and streams.
//
// Threads are as in hocket.h: a communicator is used by one thread at a time; its const members and
// abort() may be called from any.
#pragma once

#include <hocket/cpp/blocks.hpp>
#include <hocket/cpp/communicator.hpp>
#include <hocket/cpp/config.hpp>
#include <hocket/cpp/datatypes.hpp>
#include <hocket/cpp/elements.hpp>
#include <hocket/cpp/error.hpp>
#include <hocket/cpp/group.hpp>
#include <hocket/cpp/log.hpp>
#include <hocket/cpp/memory.hpp>
#include <hocket/cpp/stream.hpp>
#include <hocket/cpp/version.hpp>
