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
    "write slot, node, ppr:N:node, core, l3cache, numa or socket, each with :PE=N if a rank needs "
    "N "
    "cores";

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
    {"display", "--report-bindings says where ranks run"},
    {"inherit", "it is not needed"},
    {"noinherit", "it is not needed"},
    {"ordered", "it is not needed"},
};

Status bad(const std::string& text, const std::string& why) {
  return invalid_argument("--map-by: '" + text + "' " + why);
}

/// The error of a word, or of an empty word, that is not one of hocket-run's.
Status unknown(const std::string& text, const std::string& word) {
  const std::string_view name = std::string_view(word).substr(0, word.find('='));
  const auto row = std::ranges::find(foreign, name, &Foreign::word);
  if (row != std::end(foreign)) {
    return invalid_argument("--map-by: hocket-run has no '" + word + "': " + row->remedy);
  }
  return bad(text, (word.empty() ? std::string("is not complete; ")
                                 : "has '" + word + "', which is not known; ") +
                       what_to_write);
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

/// ppr:N:OBJECT, the first three words.
Status parse_per_host(const std::string& text, const std::vector<std::string>& words,
                      MapBy* map_by) {
  if (words.size() < 3 || !parse_number(words[1], &map_by->per_host)) {
    return bad(text, "has no valid number of ranks; write ppr:N:node");
  }
  if (words[2] == "node") return {};
  return bad(text,
             "needs the number of such parts of a host before the ranks are placed, which "
             "hocket-run does not know; write ppr:N:node with the number of ranks of a whole host, "
             "or --hosts HOST:RANKS,... --map-by numa");
}

/// none: the word names no part of a host.
Part part_of(const std::string& word) {
  if (word == "core") return Part::core;
  if (word == "l3cache") return Part::l3cache;
  if (word == "numa") return Part::numa;
  return word == "socket" || word == "package" ? Part::socket : Part::none;
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

/// Sets the number of ranks that each host may have.
Status count_slots(const MapBy& map_by, const std::string& source, std::vector<HostSlots>* hosts) {
  for (HostSlots& host : *hosts) {
    if (map_by.per_host == 0) {
      host.slots = std::max(host.slots, 1);
      continue;
    }
    if (host.slots != 0 && host.slots < map_by.per_host) {
      return invalid_argument(fmt::format("--map-by ppr:{}:node: {} has room for {} only in {}",
                                          map_by.per_host, host.name, host.slots, source));
    }
    host.slots = map_by.per_host;
  }
  return {};
}

/// Completes the number of ranks, or checks that the hosts have room for it.
Status count_ranks(const std::vector<HostSlots>& hosts, const std::string& source, int* ranks) {
  long slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (*ranks == 0 && slots > max_ranks) {
    return invalid_argument(
        fmt::format("{} asks for {} ranks, but a job has at most {}", source, slots, max_ranks));
  }
  if (*ranks == 0) *ranks = static_cast<int>(slots);
  if (*ranks <= slots) return {};
  return invalid_argument(fmt::format(
      "-n {} asks for more ranks than {} has room for ({}): use fewer ranks or more hosts", *ranks,
      source, slots));
}

}  // namespace

Status parse_map_by(const std::string& text, MapBy* map_by) {
  *map_by = MapBy();
  const std::vector<std::string> words = words_of(text);
  std::size_t next = 1;
  if (words[0] == "ppr") {
    HOCKET_RETURN_IF_ERROR(parse_per_host(text, words, map_by));
    next = 3;
  } else if (!parse_place(words[0], map_by) && !(words[0].empty() && words.size() > 1)) {
    return unknown(text, words[0]);
  }
  for (; next < words.size(); ++next) {
    const std::string& word = words[next];
    if (!word.starts_with("pe=")) return unknown(text, word);
    if (!parse_number(std::string_view(word).substr(3), &map_by->cores_per_rank)) {
      return bad(text, "has no valid number of cores; write :PE=N");
    }
  }
  return {};
}

Status binding_rules(const std::string& bind_to, const MapBy& map_by, BindingRules* rules) {
  const bool counts_cores = map_by.cores_per_rank != 0;
  rules->spread = map_by.part == Part::core ? Part::none : map_by.part;
  rules->cores_per_rank = std::max(map_by.cores_per_rank, 1);
  const Part by_default = counts_cores ? Part::core : map_by.part;
  rules->to = bind_to.empty() ? by_default : part_of(bind_to);
  if (!counts_cores || rules->to == Part::core) return {};
  return invalid_argument(fmt::format(
      "--map-by: PE={} is the number of cores of a rank that is bound to cores; leave it out, or "
      "write --bind-to core instead of --bind-to {}",
      map_by.cores_per_rank, bind_to));
}

Status place_ranks(const MapBy& map_by, const std::string& source, int* ranks,
                   std::vector<HostSlots>* hosts) {
  if (hosts->empty()) {
    if (*ranks == 0 && map_by.per_host == 0) {
      return invalid_argument(
          "the number of ranks is missing: write -n RANKS, or --hosts HOST:RANKS,...");
    }
    hosts->push_back({"", map_by.per_host == 0 ? *ranks : 0, false, {}});
  }
  HOCKET_RETURN_IF_ERROR(count_slots(map_by, source, hosts));
  HOCKET_RETURN_IF_ERROR(count_ranks(*hosts, source_text(source, *hosts), ranks));
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
