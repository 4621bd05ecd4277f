#include "training/storage_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <system_error>

#include <hocket/training/agreement.hpp>

namespace hocket::training::storage {
namespace {

struct Outcome {
  hocketResult_t code = hocketSuccess;
  std::string sentence;
  int culprit = -1;
};

Outcome run(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return {failure.code(), failure.what(), failure.culprit()};
  } catch (const Error& error) {
    return {error.code(), error.what(), error.culprit()};
  } catch (const std::bad_alloc&) {
    return {hocketSystemError, "there is not enough memory"};
  } catch (const std::exception& error) {
    return {hocketInternalError, error.what()};
  }
  return {};
}

}  // namespace

void system_failure(const std::string& verb, const std::string& path, int error) {
  throw Failure(hocketSystemError, fmt::format("cannot {} '{}': {}", verb, path,
                                               std::generic_category().message(error)));
}

void locally(const char* operation, const std::function<void()>& action) {
  const Outcome mine = run(action);
  if (mine.code == hocketSuccess) return;
  hocket::detail::throw_error(mine.code, operation, mine.sentence, mine.culprit);
}

void agree(Communicator& comm, const char* operation, const std::string& note,
           const std::function<void()>& action) {
  const Outcome mine = run(action);
  std::vector<std::int32_t> codes(static_cast<std::size_t>(comm.ranks()));
  const std::int32_t own_code[] = {static_cast<std::int32_t>(mine.code)};
  comm.all_gather(own_code, codes);
  std::vector<int> failed;
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] != hocketSuccess) failed.push_back(static_cast<int>(rank));
  }
  if (failed.empty()) return;
  const int first = failed.front();
  std::vector<char> text(2048);
  std::copy_n(mine.sentence.begin(), std::min(mine.sentence.size(), text.size() - 1), text.begin());
  comm.broadcast(text, first);
  std::string sentence = fmt::format("rank {}: {}", first, text.data());
  failed.erase(failed.begin());
  if (!failed.empty()) sentence += fmt::format(" ({} failed too)", ranks_text(failed));
  if (!note.empty()) sentence += ". " + note;
  hocket::detail::throw_error(static_cast<hocketResult_t>(codes[static_cast<std::size_t>(first)]),
                              operation, sentence, first);
}

std::vector<std::string> gather_bytes(Communicator& comm, const std::string& own) {
  std::vector<std::size_t> lengths(static_cast<std::size_t>(comm.ranks()));
  const std::size_t own_length[] = {own.size()};
  comm.all_gather(own_length, lengths);
  std::string together(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  comm.all_gather(own, together, Blocks(lengths));
  std::vector<std::string> all;
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    all.push_back(together.substr(begin, length));
    begin += length;
  }
  return all;
}

std::string broadcast_bytes(Communicator& comm, const std::string& own) {
  std::size_t length[] = {own.size()};
  comm.broadcast(length, 0);
  std::string bytes = own;
  bytes.resize(length[0]);
  if (!bytes.empty()) comm.broadcast(bytes, 0);
  return bytes;
}

}  // namespace hocket::training::storage
