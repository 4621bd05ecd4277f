#include "training/checkpoint_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

#include "training/storage_failure.h"
#include "training/storage_file.h"

namespace hocket::training::storage {
namespace {

namespace fs = std::filesystem;

const std::string being_saved = ".saving-", being_removed = ".removing-";
const std::string latest_name = "latest", new_latest_name = ".latest-new";
constexpr std::size_t longest_name = 200;

bool is_allowed(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
}

/// 7 of "000007-step-1200", which has 6 to 12 digits; nothing if the name is no checkpoint's.
std::optional<std::uint64_t> number_of(const std::string& name) {
  const std::size_t dash = name.find('-');
  if (dash == std::string::npos || dash < 6 || dash > 12 || name.size() > longest_name ||
      !is_allowed(name)) {
    return std::nullopt;
  }
  std::uint64_t number = 0;
  const auto result = std::from_chars(name.data(), name.data() + dash, number);
  if (result.ec != std::errc() || result.ptr != name.data() + dash) return std::nullopt;
  return number;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(directory, error);
  while (!error && at != fs::directory_iterator()) {
    names.push_back(at->path().filename().string());
    at.increment(error);
  }
  if (error) system_failure("read directory", directory, error.value());
  return names;
}

struct Numbered {
  std::uint64_t number = 0;
  std::string name;
  auto operator<=>(const Numbered&) const = default;
};

/// The checkpoints in the directory, by number.
std::vector<Numbered> checkpoints_in(const std::string& directory) {
  std::vector<Numbered> all;
  for (const std::string& name : names_in(directory)) {
    if (const auto number = number_of(name)) all.push_back({*number, name});
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool exists(const std::string& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) system_failure("read", path, error.value());
  return found;
}

/// `latest`, if the directory has it.
std::optional<std::string> named_by_latest(const std::string& directory) {
  const std::string path = directory + "/" + latest_name;
  if (!exists(path)) return std::nullopt;
  std::string name = contents_of(path, longest_name + 1);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  if (!number_of(name)) damaged(path, "it does not have the name of a checkpoint");
  return name;
}

std::optional<std::string> chosen(const std::string& directory) {
  if (exists(directory + "/manifest")) return "";
  if (const auto name = named_by_latest(directory)) return name;
  const std::vector<Numbered> all = checkpoints_in(directory);
  if (all.empty()) return std::nullopt;
  return all.back().name;
}

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) system_failure("remove", path, error.value());
}

}  // namespace

std::string choose_checkpoint(const std::string& directory) {
  const auto name = chosen(directory);
  if (!name) {
    throw Failure(
        hocketSystemError,
        fmt::format("directory '{}' has no checkpoint: it has neither '{}' nor a manifest",
                    directory, latest_name));
  }
  return *name;
}

bool has_checkpoint(const std::string& directory) {
  return exists(directory) && chosen(directory).has_value();
}

void require_label(const std::string& label) {
  if (label.empty() || label.size() > 100 || !is_allowed(label)) {
    refuse(
        fmt::format("'{}' cannot be the label of a checkpoint: a label has 1 to 100 letters, "
                    "digits, '.', '-' or '_'",
                    label));
  }
}

std::string temporary_path(const std::string& directory, const std::string& name) {
  return directory + "/" + being_saved + name;
}

std::string begin_checkpoint(const std::string& directory, const std::string& label) {
  std::uint64_t number = 1;
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(being_saved) || name.starts_with(being_removed)) {
      remove_folder(directory + "/" + name);
    } else if (const auto its = number_of(name)) {
      number = std::max(number, *its + 1);
    }
  }
  const std::string name = fmt::format("{:06}-{}", number, label);
  const std::string path = temporary_path(directory, name);
  std::error_code error;
  fs::create_directory(path, error);
  if (error) system_failure("create directory", path, error.value());
  return name;
}

void commit_checkpoint(const std::string& directory, const std::string& name) {
  const std::string temporary = temporary_path(directory, name);
  const std::string path = directory + "/" + name;
  const std::string latest = directory + "/" + latest_name;
  const std::string new_latest = directory + "/" + new_latest_name;
  std::error_code ignored;
  fs::remove(new_latest, ignored);
  sync_directory(temporary);
  try {
    write_file(new_latest, name + "\n");
    rename_path(temporary, path);
    sync_directory(directory);
    rename_path(new_latest, latest);
  } catch (...) {
    fs::remove(new_latest, ignored);
    fs::remove_all(path, ignored);
    throw;
  }
  sync_directory(directory);
}

void discard_checkpoint(const std::string& directory, const std::string& name) noexcept {
  // After the death of a rank, a survivor may still create its file while this rank removes.
  std::error_code error = std::make_error_code(std::errc::directory_not_empty);
  for (int i = 0; i < 3 && error; ++i) fs::remove_all(temporary_path(directory, name), error);
}

void remove_old_checkpoints(const std::string& directory, const std::string& name, int keep) {
  std::vector<Numbered> all = checkpoints_in(directory);
  std::erase_if(all, [&](const Numbered& each) { return each.name == name; });
  const auto kept = static_cast<std::size_t>(keep - 1);
  for (std::size_t i = 0; i + kept < all.size(); ++i) {
    // A checkpoint that is half removed is not visible as a checkpoint.
    const std::string hidden = directory + "/" + being_removed + all[i].name;
    rename_path(directory + "/" + all[i].name, hidden);
    remove_folder(hidden);
  }
}

}  // namespace hocket::training::storage
