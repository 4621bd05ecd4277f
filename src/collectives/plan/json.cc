#include "collectives/plan/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>

#include "base/checked.h"

namespace hocket::internal {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_lanes = 1024, most_steps = 1024;  // of a file; of a lane
constexpr std::int64_t most_publics = public_flags - 1;
constexpr int most_depth = 8;  // of lists and objects; a plan has 6

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

/// nlohmann-json keeps the last of several values of a key: two are an error here.
Status parse_json(std::string_view text, Json* out) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  bool too_deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    too_deep |= depth > most_depth;
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open.back().insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  try {
    *out = Json::parse(text.begin(), text.end(), look);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.parse_error.101] parse ..."
    const std::size_t prefix = what.find("] ");
    std::string plain(what.substr(prefix == std::string_view::npos ? 0 : prefix + 2));
    for (char& c : plain) c = c >= ' ' && c <= '~' ? c : '?';
    return invalid_argument(plain);
  }
  if (too_deep) return invalid_argument("lists and objects are nested too deep");
  if (!twice.empty())
    return invalid_argument("an object has the key " + in_quotes(twice) + " twice");
  return {};
}

/// Reads the parsed text. The first error stays; what follows it is read as if it were missing.
class Reader {
 public:
  Reader(const std::string& source, PlanFile* out) : file_(*out) {
    file_ = {};
    file_.source = source;
  }

  Status read(const Json& json) {
    file_.hash = hash_of(json.dump());
    if (!json.is_object()) return refused(file_, "is no JSON object");
    if (const Json* name = find(json, "name")) read_name(*name);
    check_keys(json, "the plan",
               {"$schema", "about", "name", "collective", "ranks", "links", "layout", "varying",
                "cut", "slots", "scratch_blocks", "wide_scratch", "line_blocks", "arrives_first",
                "maps_input", "maps_output", "single_chunk", "small_bytes", "lanes"});
    if (find(json, "name") == nullptr) fail("name", "is missing");
    header(json);
    numbers(json);
    lanes(json);
    check_header();
    return error_.empty() ? Status() : refused(file_, error_);
  }

 private:
  void fail(const std::string& place, const std::string& what) {
    if (error_.empty()) error_ = place + " " + what;
  }

  // ---- JSON values
  static const Json* find(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }

  void check_keys(const Json& object, const std::string& place,
                  std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : object.items()) {
      if (std::ranges::find(known, key) == known.end()) {
        fail(place, "has the unknown key " + in_quotes(key));
      }
    }
  }

  std::string text(const Json& value, const std::string& place) {
    if (value.is_string()) return value.get<std::string>();
    fail(place, "must be a text");
    return {};
  }

  bool flag(const Json& object, const char* key) {
    const Json* const value = find(object, key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) fail(key, "must be true or false");
    return value->is_boolean() && value->get<bool>();
  }

  std::int64_t whole(const Json& value, const std::string& place, std::int64_t least,
                     std::int64_t most) {
    if (value.is_number_integer()) {
      const bool fits = !value.is_number_unsigned() ||
                        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
      if (fits && value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most) {
        return value.get<std::int64_t>();
      }
    }
    fail(place, fmt::format("must be a whole number, {} to {}", least, most));
    return least;
  }

  /// A text, or a whole number.
  Expression expression(const Json& value, const std::string& place) {
    if (value.is_number()) {
      constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
      return Expression(narrowed<std::int32_t>(whole(value, place, -most, most)));
    }
    return expression(std::string_view(text(value, place)), place);
  }
  Expression expression(std::string_view formula, const std::string& place) {
    Expression made;
    if (!error_.empty()) return made;
    const Status status = Expression::parse(formula, &made);
    if (!status.ok()) fail(place + ":", status.message());
    return made;
  }

  void optional_expression(const Json& object, const char* key, const std::string& place,
                           Expression* out) {
    if (const Json* value = find(object, key)) {
      *out = expression(*value, place.empty() ? key : place + "." + key);
    }
  }
  void optional_expression(const Json& object, const char* key, const std::string& place,
                           std::optional<Expression>* out) {
    if (const Json* value = find(object, key)) *out = expression(*value, place + "." + key);
  }

  Condition condition(const Json& value, const std::string& place) {
    Condition made;
    const std::string formula = text(value, place);
    if (!error_.empty()) return made;
    const Status status = Condition::parse(formula, &made);
    if (!status.ok()) fail(place + ":", status.message());
    return made;
  }

  // ---- The header
  void read_name(const Json& value) {
    const std::string name = text(value, "name");
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    };
    if (!name.empty() && name.size() <= most_name_characters &&
        std::ranges::all_of(name, allowed)) {
      file_.name = name;
    } else {
      fail("name",
           fmt::format("must be 1 to {} small letters, digits and hyphens", most_name_characters));
    }
  }

  void header(const Json& json) {
    if (const Json* about = find(json, "about")) text(*about, "about");
    if (const Json* schema = find(json, "$schema")) text(*schema, "$schema");
    const Json* const ranks = find(json, "ranks");
    if (ranks == nullptr) return fail("ranks", "is missing");
    file_.ranks = condition(*ranks, "ranks");
    const Json* const links = find(json, "links");
    const std::string word = links == nullptr ? "" : text(*links, "links");
    static constexpr std::pair<std::string_view, Medium> media[] = {
        {"node", Medium::node}, {"messages", Medium::messages}, {"both", Medium::both}};
    const auto medium = std::ranges::find(media, word, &std::pair<std::string_view, Medium>::first);
    if (medium == std::end(media)) return fail("links", "must be 'node', 'messages' or 'both'");
    file_.medium = medium->second;
    if (const Json* layout = find(json, "layout")) read_layout(*layout);
    const Json* const collective = find(json, "collective");
    const std::string name = collective == nullptr ? "" : text(*collective, "collective");
    const auto row = std::ranges::find_if(collective_table, [&](const CollectiveRow& candidate) {
      return name == candidate.name && !is_p2p(candidate.collective);
    });
    if (row == std::end(collective_table)) {
      return fail("collective",
                  "must be all-reduce, broadcast, all-gather, reduce-scatter, barrier, reduce, "
                  "gather, scatter or all-to-all");
    }
    file_.collective = row->collective;
  }

  void read_layout(const Json& value) {
    if (file_.medium != Medium::both) return fail("layout", "is only for links 'both'");
    if (!value.is_array() || value.empty() || value.size() > most_ranks_of_file) {
      return fail("layout", fmt::format("must be a list of 1 to {} numbers: the node of each rank",
                                        most_ranks_of_file));
    }
    for (const Json& node : value) {
      file_.layout.push_back(
          narrowed<std::uint32_t>(whole(node, "layout", 0, most_ranks_of_file - 1)));
    }
  }

  void numbers(const Json& json) {
    optional_expression(json, "cut", "", &file_.cut);
    optional_expression(json, "scratch_blocks", "", &file_.scratch_blocks);
    optional_expression(json, "line_blocks", "", &file_.line_blocks);
    optional_expression(json, "small_bytes", "", &file_.small_bytes);
    if (const Json* slots = find(json, "slots")) {
      file_.slots = static_cast<std::uint8_t>(whole(*slots, "slots", 1, max_slots));
    }
    file_.varying = flag(json, "varying");
    file_.wide_scratch = flag(json, "wide_scratch");
    file_.arrives_first = flag(json, "arrives_first");
    file_.maps_input = flag(json, "maps_input");
    file_.maps_output = flag(json, "maps_output");
    file_.single_chunk = flag(json, "single_chunk");
  }

  /// What the verifier does not know: when the selector can use a plan.
  void check_header() {
    const CollectiveRow& row = row_of(file_.collective);
    const bool maps = file_.maps_input || file_.maps_output;
    if (file_.varying && !may_vary(row)) {
      fail("varying", fmt::format("is true, but blocks of a {} have equal counts", row.name));
    }
    if (file_.wide_scratch && !row.reduces) {
      fail("wide_scratch", fmt::format("is true, but a {} has no partial results", row.name));
    }
    if (maps && file_.medium == Medium::both) {
      fail("links", "must be 'node' where buffers are mapped");
    }
    if (maps && !file_.arrives_first) {
      fail("arrives_first", "must be true where buffers are mapped");
    }
    if (maps && (row.input == Blocks::none || (file_.varying && !shares_blocks(row)))) {
      fail("maps_input",
           "or maps_output is true, but no plan stands behind this one where the "
           "buffers of a call are not mapped");
    }
  }

  // ---- Lanes
  void lanes(const Json& json) {
    const Json* const list = find(json, "lanes");
    if (list == nullptr || !list->is_array() || list->empty() || list->size() > most_lanes) {
      return fail("lanes", fmt::format("must be a list of 1 to {} lanes", most_lanes));
    }
    for (const Json& entry : *list) {
      if (!error_.empty()) return;
      file_.lanes.push_back(lane(entry, fmt::format("lanes[{}]", file_.lanes.size())));
    }
  }

  LaneText lane(const Json& json, const std::string& place) {
    LaneText made;
    made.place = place;
    if (!json.is_object()) {
      fail(place, "must be an object");
      return made;
    }
    const Json* const name = find(json, "name");
    made.name = name == nullptr ? "" : text(*name, place + ".name");
    const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
    if (made.name.empty() || made.name.size() > most_name_characters ||
        !std::ranges::all_of(made.name, plain)) {
      fail(place + ".name",
           fmt::format("must be a text of 1 to {} ASCII characters", most_name_characters));
    }
    made.place += fmt::format(" '{}'", made.name);
    check_keys(json, made.place,
               {"name", "when", "of", "block", "instances", "window", "publishes", "steps"});
    if (const Json* when = find(json, "when")) made.when = condition(*when, made.place + ".when");
    blocks(json, &made);
    optional_expression(json, "instances", made.place, &made.instances);
    optional_expression(json, "window", made.place, &made.window);
    if (const Json* publishes = find(json, "publishes")) {
      made.publishes =
          narrowed<std::int16_t>(whole(*publishes, made.place + ".publishes", 0, most_publics));
    }
    steps(json, &made);
    return made;
  }

  void blocks(const Json& json, LaneText* out) {
    const Json* const of = find(json, "of");
    const Json* const block = find(json, "block");
    if (of == nullptr && block == nullptr) return;  // once
    const std::string word = of == nullptr ? "" : text(*of, out->place + ".of");
    if (block == nullptr || (word != "input" && word != "output")) {
      return fail(out->place,
                  "must have both: 'block' (a formula, or \"all\"), and 'of' ('input' "
                  "or 'output'); or neither, then it runs once");
    }
    out->extents = word == "output" ? Buffer::output : Buffer::input;
    out->counts = *block == "all" ? Counts::all_blocks : Counts::one_block;
    if (out->counts == Counts::one_block) out->block = expression(*block, out->place + ".block");
  }

  void steps(const Json& json, LaneText* out) {
    const Json* const list = find(json, "steps");
    if (list == nullptr || !list->is_array() || list->empty() || list->size() > most_steps) {
      return fail(out->place + ".steps",
                  fmt::format("must be a list of 1 to {} steps", most_steps));
    }
    for (const Json& entry : *list) {
      if (!error_.empty()) return;
      out->steps.push_back(step(entry, fmt::format("{}, step {}", out->place, out->steps.size())));
    }
  }

  // ---- Steps
  StepText step(const Json& json, const std::string& place) {
    StepText made;
    made.place = place;
    using Read = void (Reader::*)(const Json&, const Json&, StepText*);
    static constexpr std::pair<const char*, Read> kinds[] = {
        {"copy", &Reader::copy},     {"fold", &Reader::fold},
        {"finish", &Reader::finish}, {"send", &Reader::send},
        {"recv", &Reader::recv},     {"arrive", &Reader::arrive},
        {"wait", &Reader::wait},     {"await_arrival", &Reader::await_arrival},
        {"await", &Reader::await},   {"await_end", &Reader::await_end}};
    if (json.is_object()) {
      for (const auto& [key, read] : kinds) {
        const Json* const value = find(json, key);
        if (value == nullptr) continue;
        (this->*read)(json, *value, &made);
        return made;
      }
    }
    fail(place,
         "must be an object with one of the keys copy, fold, finish, send, recv, arrive, "
         "await_arrival, wait, await, await_end");
    return made;
  }

  void copy(const Json& json, const Json& value, StepText* out) {
    if (!value.is_string()) return fail(out->place + ".copy", "must be one range");
    fold_like(json, value, "copy", out);
  }
  void fold(const Json& json, const Json& value, StepText* out) {
    fold_like(json, value, "fold", out);
  }
  void finish(const Json& json, const Json& value, StepText* out) {
    out->finish = true;
    fold_like(json, value, "finish", out);
  }
  void fold_like(const Json& json, const Json& value, const char* key, StepText* out) {
    check_keys(json, out->place, {key, "into", "block", "repeat", "when"});
    out->kind = StepKind::fold;
    ranges(value, out->place + "." + key, &out->srcs);
    const Json* const into = find(json, "into");
    if (into == nullptr) return fail(out->place, "lacks 'into', the destinations");
    ranges(*into, out->place + ".into", &out->dsts);
    blocks_of_step(json, out);
  }

  void blocks_of_step(const Json& json, StepText* out) {
    optional_expression(json, "block", out->place, &out->block);
    optional_expression(json, "repeat", out->place, &out->repeat);
    const Json* const when = find(json, "when");
    if (when == nullptr) return;
    if (*when != "small" && *when != "large") {
      return fail(out->place + ".when", "must be 'small' or 'large'");
    }
    out->when = *when == "small" ? When::small : When::large;
  }

  void send(const Json& json, const Json& value, StepText* out) {
    out->kind = StepKind::send;
    message(json, value, "send", "to", &out->srcs, out);
  }
  void recv(const Json& json, const Json& value, StepText* out) {
    out->kind = StepKind::recv;
    message(json, value, "recv", "from", &out->dsts, out);
  }
  void message(const Json& json, const Json& value, const char* key, const char* peer,
               std::vector<RangeText>* data, StepText* out) {
    check_keys(json, out->place, {key, peer, "tag", "block", "repeat", "when"});
    if (value != "nothing") data->push_back(range(value, out->place + "." + key));
    const Json* const rank = find(json, peer);
    if (rank == nullptr) return fail(out->place, fmt::format("lacks '{}', the other rank", peer));
    out->peer = expression(*rank, out->place + "." + peer);
    optional_expression(json, "tag", out->place, &out->tag);
    blocks_of_step(json, out);
  }

  void arrive(const Json& json, const Json& value, StepText* out) {
    check_keys(json, out->place, {"arrive"});
    out->kind = StepKind::arrive;
    if (value != true) fail(out->place + ".arrive", "must be true");
  }
  void await_arrival(const Json& json, const Json& value, StepText* out) {
    check_keys(json, out->place, {"await_arrival"});
    out->kind = StepKind::await_arrival;
    peer_or_all(value, out->place + ".await_arrival", out);
  }
  void wait(const Json& json, const Json& value, StepText* out) {
    check_keys(json, out->place, {"wait", "of", "back"});
    out->kind = StepKind::wait;
    out->flag = narrowed<std::uint16_t>(whole(value, out->place + ".wait", 0, most_publics));
    const Json* const of = find(json, "of");
    if (of == nullptr) return fail(out->place, "lacks 'of', a rank or \"all\"");
    peer_or_all(*of, out->place + ".of", out);
    back(json, out);
  }
  void await(const Json& json, const Json& value, StepText* out) {
    check_keys(json, out->place, {"await", "instance", "repeat", "back"});
    await_like(json, value, out);
    back(json, out);
  }
  void await_end(const Json& json, const Json& value, StepText* out) {
    check_keys(json, out->place, {"await_end", "instance", "repeat"});
    out->end = true;
    await_like(json, value, out);
  }
  void await_like(const Json& json, const Json& value, StepText* out) {
    out->kind = StepKind::await;
    if (value.is_string()) {
      out->lane = value.get<std::string>();
    } else {
      out->lane_number = narrowed<std::uint32_t>(whole(value, out->place, 0, most_lanes));
    }
    if (value.is_string() && out->lane.empty()) {
      fail(out->place, "awaits a lane without a name");
    }
    optional_expression(json, "instance", out->place, &out->instance);
    optional_expression(json, "repeat", out->place, &out->repeat);
  }

  void back(const Json& json, StepText* out) {
    if (const Json* value = find(json, "back")) {
      out->lag = narrowed<std::uint16_t>(whole(*value, out->place + ".back", 0, 0xffff));
    }
  }
  void peer_or_all(const Json& value, const std::string& place, StepText* out) {
    out->all = value == "all";
    if (!out->all) out->peer = expression(value, place);
  }

  // ---- Ranges
  void ranges(const Json& value, const std::string& place, std::vector<RangeText>* out) {
    if (value.is_string()) {
      out->push_back(range(value, place));
    } else if (value.is_array() && !value.empty() && value.size() <= most_steps) {
      for (const Json& entry : value) out->push_back(range(entry, place));
    } else {
      fail(place, fmt::format("must be a range, or a list of 1 to {} ranges", most_steps));
    }
  }

  /// "BUFFER[block]", then "w", "@rank" and "{j<repeat}" where they are needed.
  RangeText range(const Json& value, const std::string& place) {
    RangeText made;
    const std::string whole_text = text(value, place);
    std::string_view rest = whole_text;
    const auto wrong = [&] {
      fail(place, in_quotes(whole_text) +
                      " is no range: write in[b], out[b], s[b] or line[b], with w "
                      "(wide), @rank and {j<number} behind it where they are needed");
      return made;
    };
    static constexpr std::pair<std::string_view, Buffer> buffers[] = {{"in[", Buffer::input},
                                                                      {"out[", Buffer::output},
                                                                      {"s[", Buffer::scratch},
                                                                      {"line[", Buffer::line}};
    const auto buffer = std::ranges::find_if(
        buffers, [&](const auto& named) { return rest.starts_with(named.first); });
    const std::size_t bracket = rest.find(']');
    if (buffer == std::end(buffers) || bracket == std::string_view::npos) return wrong();
    made.buffer = buffer->second;
    const std::size_t begin = buffer->first.size();
    made.block = expression(rest.substr(begin, bracket - begin), place);
    rest.remove_prefix(bracket + 1);
    made.wide = rest.starts_with('w');
    if (made.wide) rest.remove_prefix(1);
    if (rest.starts_with('@')) {
      const std::size_t end = std::min(rest.find('{'), rest.size());
      made.rank = expression(rest.substr(1, end - 1), place);
      rest.remove_prefix(end);
    }
    if (rest.starts_with("{j<") && rest.ends_with('}')) {
      made.repeat = expression(rest.substr(3, rest.size() - 4), place);
      rest = {};
    }
    return rest.empty() ? made : wrong();
  }

  PlanFile& file_;
  std::string error_;
};

}  // namespace

Status read_plan(std::string_view text, const std::string& source, PlanFile* out) {
  if (text.size() > most_file_bytes) {
    return invalid_argument(
        fmt::format("{}: a plan has at most {} bytes of text", source, most_file_bytes));
  }
  Json json;
  const Status parsed = parse_json(text, &json);
  if (!parsed.ok()) return invalid_argument(source + ": " + parsed.message());
  return Reader(source, out).read(json);
}

}  // namespace hocket::internal
