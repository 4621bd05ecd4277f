#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bootstrap/join/unique_id.h"
#include "bootstrap/launchers/meeting.h"
#include "bootstrap/launchers/mpi_library.h"
#include "bootstrap/launchers/pmi1.h"
#include "bootstrap/launchers/pmix.h"
#include "bootstrap/launchers/published.h"

namespace hocket::internal {
namespace {

/// Rank 0 makes the job's id and key, and its text.
Status offer(const Meeting& meeting, std::string* text) {
  UniqueId id;
  HOCKET_RETURN_IF_ERROR(make_unique_id(&id));
  HOCKET_RETURN_IF_ERROR(open_listener(meeting));
  id.coordinator = meeting.info->coordinator;
  meeting.info->job_id = id.job_id;
  const std::string& file = meeting.settings.job_key_file;
  if (!file.empty()) HOCKET_RETURN_IF_ERROR(read_key_file(file, &id.key));
  meeting.info->key = id.key;
  *text = published_text(id, file.empty());
  return {};
}

Status accept_offer(const Meeting& meeting, const std::string& text) {
  UniqueId id;
  bool with_key = false;
  HOCKET_RETURN_IF_ERROR(parse_published(text, &id, &with_key));
  const std::string& file = meeting.settings.job_key_file;
  if (with_key == file.empty()) {
    if (!with_key) HOCKET_RETURN_IF_ERROR(read_key_file(file, &id.key));
    meeting.info->job_id = id.job_id;
    meeting.info->key = id.key;
    meeting.info->coordinator = id.coordinator;
    return {};
  }
  return invalid_usage(fmt::format(
      "HOCKET_JOB_KEY_FILE is {} here and {} on rank 0: set it on all ranks of a job, or on none "
      "(mpirun of Open MPI passes it on with `-x HOCKET_JOB_KEY_FILE`)",
      with_key ? "set" : "not set", with_key ? "not" : "set"));
}

Pmi1::Manners pmi_manners() {
  switch (mpi_state()) {
    case MpiState::none:
      return Pmi1::Manners::whole;
    case MpiState::loaded:
      return Pmi1::Manners::introduce;
    case MpiState::running:
      return Pmi1::Manners::guest;
  }
  return Pmi1::Manners::whole;
}

}  // namespace

Status meet_by_pmix(const Meeting& meeting) {
  const bool before_mpi = mpi_state() == MpiState::loaded;
  if (before_mpi && open_mpi_major() >= 5) {
    return invalid_usage(
        "MPI_Init of Open MPI 5 fails in a process that has used PMIx before: call MPI_Init before "
        "hocketCommInitFromEnv, or use hocketCommInitRank with an id from hocketGetUniqueId that "
        "MPI_Bcast passes to all ranks");
  }
  std::unique_ptr<Pmix> opened;
  HOCKET_RETURN_IF_ERROR(Pmix::open(before_mpi, &opened));
  std::shared_ptr<Pmix> pmix = std::move(opened);
  LaunchInfo& info = *meeting.info;
  int ranks = 0;
  HOCKET_RETURN_IF_ERROR(pmix->ranks(&ranks));
  if (pmix->rank() != meeting.launched.rank ||
      (meeting.launched.ranks != 0 && ranks != meeting.launched.ranks)) {
    return invalid_usage(
        fmt::format("the launcher's PMIx server says rank {} of {}: the variables are left from "
                    "another launcher; unset them before the inner launcher starts",
                    pmix->rank(), ranks));
  }
  info.ranks = ranks;
  std::string text;
  if (info.rank != 0) {
    HOCKET_RETURN_IF_ERROR(pmix->read(meeting.wait, &text));
    return accept_offer(meeting, text);
  }
  HOCKET_RETURN_IF_ERROR(offer(meeting, &text));
  HOCKET_RETURN_IF_ERROR(pmix->publish(text));
  info.until_joined = std::move(pmix);
  return {};
}
Status meet_by_pmi1(const Meeting& meeting) {
  LaunchInfo& info = *meeting.info;
  std::unique_ptr<Pmi1> pmi;
  HOCKET_RETURN_IF_ERROR(Pmi1::open(Environment(), pmi_manners(), meeting.wait, &pmi));
  info.rank = pmi->rank();
  info.ranks = pmi->ranks();
  std::string text;
  if (info.rank == 0) HOCKET_RETURN_IF_ERROR(offer(meeting, &text));
  HOCKET_RETURN_IF_ERROR(pmi->broadcast(meeting.wait, &text));
  if (info.rank != 0) HOCKET_RETURN_IF_ERROR(accept_offer(meeting, text));
  return pmi->close(meeting.wait);
}

}  // namespace hocket::internal
