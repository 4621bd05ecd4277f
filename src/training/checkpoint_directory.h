// The names in a directory of checkpoints.
#pragma once

#include <string>
#include <vector>

namespace hocket::training::storage {

/// The name of the checkpoint that is read: what `latest` names, or without that file the
/// checkpoint with the highest number. Empty: the directory is a checkpoint itself.
/// Throws Failure if there is no checkpoint.
std::string choose_checkpoint(const std::string& directory);
/// Whether choose_checkpoint() would find a checkpoint. Throws Failure if the directory cannot be
/// read.
bool has_checkpoint(const std::string& directory);

/// Throws Failure unless the label is allowed.
void require_label(const std::string& label);

/// On rank 0: removes what saves left that did not end, makes the folder of a new checkpoint under
/// a temporary name, and returns the final name.
std::string begin_checkpoint(const std::string& directory, const std::string& label);
/// The folder in which the checkpoint of this name lies until commit_checkpoint().
std::string temporary_path(const std::string& directory, const std::string& name);
/// On rank 0: gives the folder its final name, and then makes `latest` name it. If `latest` cannot
/// be replaced, the folder is removed.
void commit_checkpoint(const std::string& directory, const std::string& name);
/// Removes the temporary folder, if it can.
void discard_checkpoint(const std::string& directory, const std::string& name) noexcept;
/// Removes the checkpoints with the lowest numbers until `keep` are left, and never this one.
void remove_old_checkpoints(const std::string& directory, const std::string& name, int keep);

}  // namespace hocket::training::storage
