#include "api/config.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/limits.h"
#include "collectives/algorithms/builders.h"
#include "engine/plan_files.h"

namespace hocket::internal::api {
namespace {

// Size of the first version of hocketConfig_t: the least size of a caller's config.
constexpr std::size_t least_size = offsetof(hocketConfig_t, interface_name) + sizeof(char*);

Status take_ms(int field, const char* name, int least, std::int64_t* value) {
  if (field == HOCKET_CONFIG_UNDEF_INT) return {};
  if (field < least) {
    return invalid_argument(std::string("config.") + name + " is " + std::to_string(field) +
                            ": give milliseconds, at least " + std::to_string(least));
  }
  *value = field;
  return {};
}

Status take_flag(int field, const char* name, bool* value) {
  if (field == HOCKET_CONFIG_UNDEF_INT) return {};
  if (field != 0 && field != 1) {
    return invalid_argument(std::string("config.") + name + " is " + std::to_string(field) +
                            ": give 0 or 1");
  }
  *value = field == 1;
  return {};
}

Status take_fields(const hocketConfig_t& given, CommConfig* out) {
  if (given.magic != HOCKET_CONFIG_MAGIC || given.size < least_size) {
    return invalid_argument("config was not begun with HOCKET_CONFIG_INITIALIZER");
  }
  hocketConfig_t config = HOCKET_CONFIG_INITIALIZER;
  std::memcpy(&config, &given, std::min(given.size, sizeof config));
  HOCKET_RETURN_IF_ERROR(take_flag(config.blocking, "blocking", &out->blocking));
  HOCKET_RETURN_IF_ERROR(take_flag(config.deterministic, "deterministic", &out->deterministic));
  HOCKET_RETURN_IF_ERROR(take_ms(config.deadline_ms, "deadline_ms", 1, &out->deadline_ms));
  HOCKET_RETURN_IF_ERROR(
      take_ms(config.join_deadline_ms, "join_deadline_ms", 1, &out->join_deadline_ms));
  HOCKET_RETURN_IF_ERROR(
      take_ms(config.silence_ms, "silence_ms", least_silence_ms, &out->silence_ms));
  if (config.commName != nullptr) out->name = config.commName;
  if (config.interface_name != nullptr) out->interface = config.interface_name;
  return {};
}

/// A communicator that is split off has the plans of its parent: the files are not read again.
Status take_plans(const Settings& settings, CommConfig* out) {
  if (out->plan_files != settings.plan_files) {
    auto plans = std::make_shared<std::vector<PlanFile>>();
    const Status read = read_plan_files(settings.plan_files, plans.get());
    if (!read.ok()) return invalid_usage("HOCKET_PLAN_FILES: " + read.message());
    out->plan_files = settings.plan_files;
    out->plans = std::move(plans);
  }
  if (settings.algorithm.empty() || settings.plan_files.empty()) return {};
  const auto has_name = [&](const PlanFile& plan) { return plan.name == settings.algorithm; };
  if (is_built_in(settings.algorithm) || std::ranges::any_of(*out->plans, has_name)) return {};
  return invalid_usage("HOCKET_ALGORITHM=" + settings.algorithm +
                       " is neither a built-in algorithm nor a plan of HOCKET_PLAN_FILES");
}

}  // namespace

Status make_config(const hocketConfig_t* config, const CommConfig& defaults, CommConfig* out,
                   Settings* settings) {
  *out = defaults;
  if (config != nullptr) HOCKET_RETURN_IF_ERROR(take_fields(*config, out));
  const Status read = read_settings(settings);
  if (read.code() == Code::invalid_argument) return invalid_usage(read.message());
  HOCKET_RETURN_IF_ERROR(read);
  if (!settings->unknown.empty()) {
    return invalid_usage(unknown_setting_text(settings->unknown.front()));
  }
  out->deadline_ms = settings->deadline_ms.value_or(out->deadline_ms);
  out->join_deadline_ms = settings->join_deadline_ms.value_or(out->join_deadline_ms);
  out->silence_ms = settings->silence_ms.value_or(out->silence_ms);
  out->deterministic = settings->deterministic.value_or(out->deterministic);
  out->checksum = settings->checksum.value_or(out->checksum);
  if (!settings->interface.empty()) out->interface = settings->interface;
  out->use_shm = settings->use_shm;
  out->tls = settings->tls;
  out->use_tcp = settings->use_tcp;
  out->nodes = settings->nodes;
  out->algorithm = settings->algorithm;
  out->record_operations = settings->record_operations.value_or(out->record_operations);
  out->dump_folder = settings->dump_folder;
  out->dump_signal = settings->dump_signal;
  out->trace_folder = settings->trace_folder;
  return take_plans(*settings, out);
}

}  // namespace hocket::internal::api
