#include "training/storage_failure.h"

#include <fmt/format.h>

#include <new>
#include <system_error>

namespace hocket::training::storage {
Outcome outcome_of(const std::function<void()>& action) {
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

void system_failure(const std::string& verb, const std::string& path, int error) {
  throw Failure(hocketSystemError, fmt::format("cannot {} '{}': {}", verb, path,
                                               std::generic_category().message(error)));
}

void locally(const char* operation, const std::function<void()>& action) {
  const Outcome mine = outcome_of(action);
  if (mine.code == hocketSuccess) return;
  hocket::detail::throw_error(mine.code, operation, mine.sentence, mine.culprit);
}

}  // namespace hocket::training::storage
