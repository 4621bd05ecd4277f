#include "placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/limits.h"
#include "round_robin.h"

namespace hocket::internal::launch {
namespace {

constexpr const char* what_to_write =
    "write slot, node, core, l3cache, numa, socket, or ppr:N: before one of the last five "
    "(ppr:2:numa), each with :PE=N if a rank needs N cores";
constexpr const char* what_to_write_after_ppr =
    "write ppr:N:node, ppr:N:core, ppr:N:l3cache, ppr:N:numa or ppr:N:socket";

constexpr std::size_t most_hosts_in_error = 8;

struct Foreign {
  std::string_view word;  // in small letters
  const char* remedy;
};

/// Values and modifiers of mpirun's --map-by that hocket-run does not have.
constexpr Foreign foreign[] = {
    {"hwthread", "a rank has whole cores with all their hardware threads; write core"},
    {"l1cache", "write core"},
    {"l2cache", "write core"},
    {"board", "write node"},
    {"seq", "write the hosts in the order of the ranks, with --hosts a,b,a or --hostfile"},
    {"rankfile", "write the hosts in the order of the ranks, with --hosts or --hostfile"},
    {"pe-list", "write `taskset -c LIST hocket-run ...`: the ranks of this host share these CPUs"},
    {"oversubscribe",
     "it is not needed: hocket-run starts as many ranks as -n says, however many cores there are"},
    {"nooversubscribe", "hocket-run never starts more ranks on a host than --hosts says"},
    {"span", "write node, so that ranks go to the hosts in turn"},
    {"nolocal", "name only other hosts in --hosts"},
    {"hwtcpus", "a rank has whole cores with all their hardware threads"},
    {"corecpus", "it is not needed: a rank has whole cores"},
    {"display", "--report-bindings says where ranks run, --show-placement where they would run"},
    {"donotlaunch", "write --show-placement"},
    {"inherit", "it is not needed"},
    {"noinherit", "it is not needed"},
    {"ordered", "it is not needed"},
};

Status bad(const std::string& text, const std::string& why) {
  return invalid_argument("--map-by: '" + text + "' " + why);
}

/// The error of a word, or of an empty word, that is not one of hocket-run's.
Status unknown(const std::string& text, const std::string& word, const char* what) {
  const std::string_view name = std::string_view(word).substr(0, word.find('='));
  const auto row = std::ranges::find(foreign, name, &Foreign::word);
  if (row != std::end(foreign)) {
    return invalid_argument("--map-by: hocket-run has no '" + word + "': " + row->remedy);
  }
  return bad(text, (word.empty() ? std::string("is not complete; ")
                                 : "has '" + word + "', which is not known; ") +
                       what);
}

bool parse_number(std::string_view text, int* number) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && rest == text.data() + text.size() && *number >= 1 &&
         *number <= max_ranks;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ':') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return words;
}

/// none: the word names no part of a host.
Part part_of(const std::string& word) {
  if (word == "core") return Part::core;
  if (word == "l3cache") return Part::l3cache;
  if (word == "numa") return Part::numa;
  return word == "socket" || word == "package" ? Part::socket : Part::none;
}

const char* word_of(Part part) {
  switch (part) {
    case Part::core:
      return "core";
    case Part::l3cache:
      return "l3cache";
    case Part::numa:
      return "numa";
    case Part::socket:
      return "socket";
    default:
      return "node";
  }
}

/// ppr:N:PART, the first three words.
Status parse_ppr(const std::string& text, const std::vector<std::string>& words, MapBy* map_by) {
  if (words.size() < 2 || !parse_number(words[1], &map_by->ranks_each)) {
    return bad(text, std::string("has no valid number of ranks; ") + what_to_write_after_ppr);
  }
  const std::string part = words.size() < 3 ? "" : words[2];
  map_by->part = part_of(part);
  if (part == "node" || map_by->part != Part::none) return {};
  return unknown(text, part, what_to_write_after_ppr);
}

/// Takes what --map-by names first. Returns false if the word is not known.
bool parse_place(const std::string& word, MapBy* map_by) {
  map_by->in_turn = word == "node";
  map_by->part = part_of(word);
  return map_by->in_turn || map_by->part != Part::none || word == "slot";
}

std::string source_text(const std::string& source, const std::vector<HostSlots>& hosts) {
  return hosts.size() == 1 && hosts[0].name.empty() ? "--map-by" : source;
}

std::string ppr_text(const MapBy& map_by) {
  return fmt::format("--map-by ppr:{}:{}", map_by.ranks_each, word_of(map_by.part));
}

/// "a has 2 NUMA nodes".
std::string parts_of_host_text(const MapBy& map_by, const HostSlots& host) {
  return (host.name.empty() ? "this host" : host.name) + " has " +
         parts_text(static_cast<std::size_t>(host.parts), map_by.part);
}

/// Sets the number of ranks that --map-by ppr gives to a host.
Status count_ranks_each(const MapBy& map_by, const std::string& source, bool all, HostSlots* host) {
  const long parts = map_by.needs_parts() ? host->parts : 1;
  const long wanted = parts * map_by.ranks_each;
  const std::string reason =
      map_by.needs_parts()
          ? fmt::format("{}, so {} ranks, but", parts_of_host_text(map_by, *host), wanted)
          : host->name + " has";
  if (host->slots != 0 && host->slots < wanted) {
    return invalid_argument(
        fmt::format("{}: {} room for {} only in {}; leave out that number, or raise it",
                    ppr_text(map_by), reason, host->slots, source));
  }
  if (all && wanted > max_ranks) {
    return invalid_argument(fmt::format("{}: {} a job has at most {}; write -n RANKS",
                                        ppr_text(map_by), reason, max_ranks));
  }
  host->slots = static_cast<int>(std::min<long>(wanted, max_ranks));
  return {};
}

/// Sets the number of ranks that each host may have. all: the job has as many ranks as fit.
Status count_slots(const MapBy& map_by, const std::string& source, bool all,
                   std::vector<HostSlots>* hosts) {
  for (HostSlots& host : *hosts) {
    if (map_by.ranks_each == 0) {
      host.slots = std::max(host.slots, 1);
    } else {
      HOCKET_RETURN_IF_ERROR(count_ranks_each(map_by, source, all, &host));
    }
  }
  return {};
}

/// Why the hosts have no room for more ranks, for an error.
std::string room_text(const MapBy& map_by, const std::string& source,
                      const std::vector<HostSlots>& hosts, long slots) {
  if (!map_by.needs_parts()) {
    return fmt::format("{} has room for ({}): use fewer ranks or more hosts",
                       source_text(source, hosts), slots);
  }
  std::string parts;
  for (std::size_t i = 0; i < hosts.size() && i < most_hosts_in_error; ++i) {
    parts += (i == 0 ? "" : ", ") + parts_of_host_text(map_by, hosts[i]);
  }
  if (hosts.size() > most_hosts_in_error) parts += ", ...";
  return fmt::format("{} has room for ({}): {}; use fewer ranks, more hosts or a larger N in ppr:N",
                     ppr_text(map_by), slots, parts);
}

/// Completes the number of ranks, or checks that the hosts have room for it.
Status count_ranks(const MapBy& map_by, const std::string& source,
                   const std::vector<HostSlots>& hosts, int* ranks) {
  long slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (*ranks == 0 && slots > max_ranks) {
    return invalid_argument(fmt::format(
        "{} asks for {} ranks, but a job has at most {}",
        map_by.needs_parts() ? ppr_text(map_by) : source_text(source, hosts), slots, max_ranks));
  }
  if (*ranks == 0) *ranks = static_cast<int>(slots);
  if (*ranks <= slots) return {};
  return invalid_argument(fmt::format("-n {} asks for more ranks than {}", *ranks,
                                      room_text(map_by, source, hosts, slots)));
}

}  // namespace

Status parse_map_by(const std::string& text, MapBy* map_by) {
  *map_by = MapBy();
  const std::vector<std::string> words = words_of(text);
  std::size_t next = 1;
  if (words[0] == "ppr") {
    HOCKET_RETURN_IF_ERROR(parse_ppr(text, words, map_by));
    next = 3;
  } else if (!parse_place(words[0], map_by) && !(words[0].empty() && words.size() > 1)) {
    return unknown(text, words[0], what_to_write);
  }
  for (; next < words.size(); ++next) {
    const std::string& word = words[next];
    if (!word.starts_with("pe=")) return unknown(text, word, what_to_write);
    if (!parse_number(std::string_view(word).substr(3), &map_by->cores_per_rank)) {
      return bad(text, "has no valid number of cores; write :PE=N");
    }
  }
  if (map_by->needs_parts() && map_by->part == Part::core && map_by->cores_per_rank != 0) {
    return bad(text,
               "says how many cores a rank needs, but a rank that goes to a core has that core; "
               "leave out PE, or write ppr:N:numa:PE=N");
  }
  return {};
}

Status binding_rules(const std::string& bind_to, const MapBy& map_by, BindingRules* rules) {
  const bool counts_cores = map_by.cores_per_rank != 0;
  const bool fills = map_by.needs_parts();
  rules->spread = map_by.part == Part::core && !fills ? Part::none : map_by.part;
  rules->ranks_per_part = fills ? map_by.ranks_each : 0;
  rules->cores_per_rank = std::max(map_by.cores_per_rank, 1);
  const Part by_default = counts_cores ? Part::core : map_by.part;
  rules->to = bind_to.empty() ? by_default : part_of(bind_to);
  if (!counts_cores || rules->to == Part::core) return {};
  return invalid_argument(fmt::format(
      "--map-by: PE={} is the number of cores of a rank that is bound to cores; leave it out, or "
      "write --bind-to core instead of --bind-to {}",
      map_by.cores_per_rank, bind_to));
}

Status complete_hosts(const MapBy& map_by, int ranks, std::vector<HostSlots>* hosts) {
  if (!hosts->empty()) return {};
  if (ranks == 0 && map_by.ranks_each == 0) {
    return invalid_argument(
        "the number of ranks is missing: write -n RANKS, or --hosts HOST:RANKS,...");
  }
  hosts->push_back({"", map_by.ranks_each == 0 ? ranks : 0});
  return {};
}

Status place_ranks(const MapBy& map_by, const std::string& source, int* ranks,
                   std::vector<HostSlots>* hosts) {
  HOCKET_RETURN_IF_ERROR(count_slots(map_by, source, *ranks == 0, hosts));
  HOCKET_RETURN_IF_ERROR(count_ranks(map_by, source, *hosts, ranks));
  std::vector<int> room;
  for (const HostSlots& host : *hosts) room.push_back(host.slots);
  std::vector<std::size_t> host_of = round_robin(room, *ranks);
  if (!map_by.in_turn) {
    host_of.clear();
    for (std::size_t host = 0; host < room.size(); ++host) {
      host_of.insert(host_of.end(), static_cast<std::size_t>(room[host]), host);
    }
    host_of.resize(static_cast<std::size_t>(*ranks));
  }
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    (*hosts)[host_of[rank]].ranks.push_back(static_cast<int>(rank));
  }
  std::erase_if(*hosts, [](const HostSlots& host) { return host.ranks.empty(); });
  return {};
}

}  // namespace hocket::internal::launch
