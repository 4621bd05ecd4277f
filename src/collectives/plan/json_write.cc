// Plans as a file. A lane that several ranks have, and whose numbers follow from the rank by a
// formula, is written once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/checked.h"
#include "collectives/plan/json.h"

namespace hocket::internal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Stands before and behind the place of a number in the form of a lane. No name has this character.
constexpr char mark = '\x7f';

/// True if the plan uses the node and messages.
bool is_layered(const Plan& plan) {
  return plan.uses_node() && plan.shape.layout != nullptr && plan.shape.layout->nodes() > 1;
}

/// One rank's lane. `form` is its text with marks in place of the numbers that may depend on the
/// rank: MARK by_instance,by_source,modulo MARK.
struct Written {
  std::int64_t r = 0, root = -1;
  std::string form;
  std::vector<std::int64_t> numbers;
};

/// Writes one rank's lane.
class LaneWriter {
 public:
  LaneWriter(const Plan& plan, const Lane& lane)
      : plan_(plan),
        lane_(lane),
        own_rank_(is_layered(plan) ? plan.shape.layout->local_rank(plan.shape.rank)
                                   : plan.shape.rank) {}

  Written write() {
    written_.r = plan_.shape.rank;
    written_.root = plan_.shape.root;
    OrderedJson head = {{"name", lane_.name}};
    // The condition follows the name.
    std::string& form = written_.form;
    OrderedJson rest;
    if (lane_.counts != Counts::once) {
      rest["of"] = lane_.extents == Buffer::output ? "output" : "input";
      rest["block"] = lane_.counts == Counts::all_blocks ? "all" : formula(lane_.block);
    }
    if (lane_.instances != 1) rest["instances"] = number(lane_.instances);
    if (lane_.window != std::max(1U, lane_.instances)) rest["window"] = number(lane_.window);
    if (lane_.publishes >= 0) rest["publishes"] = lane_.publishes;
    form = inside(head) + '\n' + (rest.empty() ? "" : inside(rest) + ", ") + "\"steps\": [";
    for (const Step& step : lane_.steps) {
      form += (form.back() == '[' ? "\n      " : ",\n      ") + step_json(step).dump();
    }
    form += "\n    ]";
    return std::move(written_);
  }

  /// An object without its braces.
  static std::string inside(const OrderedJson& object) {
    std::string text;
    for (const auto& [key, value] : object.items()) {
      text += (text.empty() ? "" : ", ") + OrderedJson(key).dump() + ": " + value.dump();
    }
    return text;
  }

 private:
  std::string formula(Index index) {
    if (index.by_instance == 0 && index.by_source == 0) {
      index = {.base = narrowed<std::int32_t>(index.at(0))};
    }
    written_.numbers.push_back(index.base);
    const std::string modulo =
        index.modulo == plan_.shape.ranks ? "p" : std::to_string(index.modulo);
    return fmt::format("{}{},{},{}{}", mark, index.by_instance, index.by_source, modulo, mark);
  }
  std::string number(std::int64_t value) {
    written_.numbers.push_back(value);
    return fmt::format("{}0,0,0{}", mark, mark);
  }

  /// step: of the range. Where it stands for several blocks, j counts these.
  std::string range(const Range& range, const Step& step) {
    static constexpr const char* buffers[] = {"in", "out", "s", "line"};
    std::string text =
        fmt::format("{}[{}]", buffers[static_cast<int>(range.buffer)], formula(range.block));
    if (range.wide) text += 'w';
    if (range.rank != Index{.base = narrowed<std::int32_t>(own_rank_)}) {
      text += '@' + formula(range.rank);
    }
    const bool varies = range.block.by_source != 0 || range.rank.by_source != 0;
    if (range.repeat != 1 || (varies && step.repeat == 1))
      text += "{j<" + number(range.repeat) + "}";
    return text;
  }
  OrderedJson ranges(const std::vector<Range>& all, const Step& step) {
    if (all.size() == 1) return range(all[0], step);
    OrderedJson list = OrderedJson::array();
    for (const Range& one : all) list.push_back(range(one, step));
    return list;
  }

  OrderedJson step_json(const Step& step) {
    switch (step.kind) {
      case StepKind::fold: {
        const bool copies = step.srcs.size() == 1 && step.srcs[0].repeat == 1 && !step.finish;
        OrderedJson json;
        json[copies ? "copy" : step.finish ? "finish" : "fold"] = ranges(step.srcs, step);
        json["into"] = ranges(step.dsts, step);
        return with_blocks(json, step);
      }
      case StepKind::send:
        return message(step, "send", "to", step.srcs);
      case StepKind::recv:
        return message(step, "recv", "from", step.dsts);
      case StepKind::arrive:
        return {{"arrive", true}};
      case StepKind::await_arrival:
        return {{"await_arrival", peer(step)}};
      case StepKind::wait:
        return with_lag({{"wait", step.flag}, {"of", peer(step)}}, step);
      case StepKind::await:
      case StepKind::await_board:  // no step of a lane
        break;
    }
    return await(step);
  }

  OrderedJson message(const Step& step, const char* key, const char* peer_key,
                      const std::vector<Range>& data) {
    OrderedJson json;
    json[key] = data.empty() ? "nothing" : range(data[0], step);
    json[peer_key] = formula(step.peer);
    json["tag"] = formula(step.tag);
    return with_blocks(json, step);
  }

  OrderedJson await(const Step& step) {
    OrderedJson json;
    const std::string& name = plan_.lanes[step.lane].name;
    const char* const key = step.end ? "await_end" : "await";
    if (std::ranges::count(plan_.lanes, name, &Lane::name) == 1) {
      json[key] = name;
    } else {
      json[key] = step.lane;
    }
    if (step.instance != Index{}) json["instance"] = formula(step.instance);
    if (step.repeat != 1) json["repeat"] = number(step.repeat);
    return with_lag(json, step);
  }

  std::string peer(const Step& step) { return step.all ? "all" : formula(step.peer); }
  OrderedJson with_blocks(OrderedJson json, const Step& step) {
    if (step.block != lane_.block) json["block"] = formula(step.block);
    if (step.repeat != 1) json["repeat"] = number(step.repeat);
    if (step.when != When::always) json["when"] = step.when == When::small ? "small" : "large";
    return json;
  }
  static OrderedJson with_lag(OrderedJson json, const Step& step) {
    if (step.lag != 0) json["back"] = step.lag;
    return json;
  }

  const Plan& plan_;
  const Lane& lane_;
  const std::uint32_t own_rank_;  // in ranges
  Written written_;
};

/// Finds formulas for the numbers of lanes of the same form.
class Formulas {
 public:
  Formulas(const std::vector<const Written*>& lanes, std::int64_t ranks)
      : lanes_(lanes), ranks_(ranks) {}

  /// The text of the lane for all of them; nothing if some number follows no formula.
  std::optional<std::string> text() const {
    std::string text;
    std::size_t number = 0;
    const std::string& form = lanes_[0]->form;
    for (std::size_t at = 0; at < form.size();) {
      const std::size_t begin = std::min(form.find(mark, at), form.size());
      text.append(form, at, begin - at);
      if (begin == form.size()) break;
      const std::size_t end = form.find(mark, begin + 1);
      const std::optional<std::string> base = formula_of(number++);
      if (!base) return std::nullopt;
      text += index_text(*base, form.substr(begin + 1, end - begin - 1));
      at = end + 1;
    }
    return text;
  }

 private:
  /// rest: "by_instance,by_source,modulo".
  static std::string index_text(const std::string& base, const std::string& rest) {
    const std::size_t first = rest.find(','), second = rest.find(',', first + 1);
    std::string sum = base;
    for (const auto& [factor, name] :
         {std::pair(std::stoi(rest), 'i'), std::pair(std::stoi(rest.substr(first + 1)), 'j')}) {
      if (factor == 0) continue;
      const std::string term = factor == 1 || factor == -1
                                   ? std::string(1, name)
                                   : fmt::format("{} * {}", std::abs(factor), name);
      if (sum == "0") {
        sum = (factor < 0 ? "-" : "") + term;
      } else {
        sum += (factor < 0 ? " - " : " + ") + term;
      }
    }
    const std::string modulo = rest.substr(second + 1);
    return modulo == "0" ? sum : fmt::format("({}) mod {}", sum, modulo);
  }

  static std::string plus(const std::string& variable, std::int64_t number) {
    if (number == 0) return variable;
    return fmt::format("{} {} {}", variable, number < 0 ? '-' : '+', std::abs(number));
  }

  std::optional<std::string> formula_of(std::size_t number) const {
    const auto value = [&](const Written& lane) { return lane.numbers[number]; };
    const auto all = [&](const auto& formula) {
      return std::ranges::all_of(
          lanes_, [&](const Written* lane) { return value(*lane) == formula(*lane); });
    };
    const Written& first = *lanes_[0];
    const std::int64_t there = value(first);
    if (all([&](const Written&) { return there; })) return std::to_string(there);
    if (all([&](const Written& lane) { return there + lane.r - first.r; })) {
      return plus("r", there - first.r);
    }
    if (all([&](const Written& lane) { return there - lane.r + first.r; })) {
      return fmt::format("{} - r", there + first.r);
    }
    static constexpr struct {
      const char* text;
      int by_r, by_root;
    } variables[] = {{"r", 1, 0}, {"root", 0, 1}, {"r - root", 1, -1}};
    for (const auto& variable : variables) {
      const auto sum = [&](const Written& lane) {
        return variable.by_r * lane.r + variable.by_root * lane.root;
      };
      std::int64_t shift = modulo(there - sum(first));
      if (!all([&](const Written& lane) { return modulo(sum(lane) + shift); })) continue;
      if (2 * shift > ranks_) shift -= ranks_;
      if (variable.by_r == 0 && shift == 0) return variable.text;
      return fmt::format("({}) mod p", plus(variable.text, shift));
    }
    return std::nullopt;
  }

  std::int64_t modulo(std::int64_t value) const { return ((value % ranks_) + ranks_) % ranks_; }

  const std::vector<const Written*>& lanes_;
  const std::int64_t ranks_;
};

/// Writes all lanes of the plans of all ranks.
class LanesWriter {
 public:
  explicit LanesWriter(std::span<const Plan> plans)
      : plans_(plans), ranks_(plans[0].shape.ranks), roots_(plans.size() / ranks_) {}

  std::string write() {
    std::size_t most = 0;
    for (const Plan& plan : plans_) most = std::max(most, plan.lanes.size());
    for (std::size_t position = 0; position < most; ++position) {
      std::vector<Written> written;
      for (const Plan& plan : plans_) {
        if (position >= plan.lanes.size()) continue;
        written.push_back(LaneWriter(plan, plan.lanes[position]).write());
      }
      std::map<std::string, std::vector<const Written*>> by_form;
      for (const Written& lane : written) by_form[lane.form].push_back(&lane);
      for (const auto& [form, lanes] : by_form) add(lanes);
    }
    return text_;
  }

 private:
  using Lanes = std::vector<const Written*>;

  /// One lane for all, or else one for each root, or else one for each rank.
  void add(const Lanes& lanes) {
    if (const auto when = condition_for_all(lanes)) {
      if (try_one(lanes, *when)) return;
    }
    std::map<std::int64_t, Lanes> by_root;
    for (const Written* lane : lanes) by_root[lane->root].push_back(lane);
    for (const auto& [root, group] : by_root) {
      if (try_one(group, condition(group))) continue;
      for (const Written* lane : group) try_one({lane}, condition({lane}));
    }
  }

  bool try_one(const Lanes& lanes, const std::string& when) {
    const std::optional<std::string> body = Formulas(lanes, ranks_).text();
    if (!body) return false;
    const std::size_t name_end = body->find('\n');
    text_ += text_.empty() ? "    {" : ",\n    {";
    text_ += body->substr(0, name_end);
    if (!when.empty()) text_ += ", \"when\": \"" + when + "\"";
    text_ += ", " + body->substr(name_end + 1) + "}";
    return true;
  }

  static std::string list(const std::set<std::int64_t>& numbers) {
    std::string text;
    for (const std::int64_t number : numbers) {
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    }
    return numbers.size() == 1 ? " == " + text : " in {" + text + "}";
  }

  /// Of some ranks with the same root.
  std::string condition(const Lanes& lanes) const {
    std::set<std::int64_t> ranks;
    for (const Written* lane : lanes) ranks.insert(lane->r);
    const bool all = static_cast<std::int64_t>(ranks.size()) == ranks_;
    const std::string of_rank = all ? "" : "r" + list(ranks);
    if (roots_ == 1 && lanes[0]->root < 0) return of_rank;
    return fmt::format("root == {}", lanes[0]->root) + (all ? "" : " and " + of_rank);
  }

  /// Of ranks with any root: if it depends on the distance from the root alone.
  std::optional<std::string> condition_for_all(const Lanes& lanes) const {
    if (lanes[0]->root < 0) return condition(lanes);
    std::set<std::int64_t> distances;
    for (const Written* lane : lanes) distances.insert((lane->r - lane->root + ranks_) % ranks_);
    if (lanes.size() != distances.size() * roots_) return std::nullopt;
    if (static_cast<std::int64_t>(distances.size()) == ranks_) return "";
    if (distances == std::set<std::int64_t>{0}) return "r == root";
    if (!distances.contains(0) && static_cast<std::int64_t>(distances.size()) == ranks_ - 1) {
      return "r != root";
    }
    return "(r - root) mod p" + list(distances);
  }

  std::span<const Plan> plans_;
  const std::int64_t ranks_;
  const std::size_t roots_;
  std::string text_;
};

}  // namespace

std::string write_json(std::span<const Plan> plans, bool varying) {
  const Plan& plan = plans[0];
  OrderedJson head;
  head["name"] = plan.algorithm;
  head["collective"] = row_of(plan.shape.collective).name;
  head["ranks"] = fmt::format("p == {}", plan.shape.ranks);
  head["links"] = is_layered(plan) ? "both" : plan.uses_node() ? "node" : "messages";
  if (is_layered(plan)) {
    for (std::uint32_t rank = 0; rank < plan.shape.ranks; ++rank) {
      head["layout"].push_back(plan.shape.layout->node_of(rank));
    }
  }
  if (varying) head["varying"] = true;
  if (plan.cut == plan.shape.ranks) {
    head["cut"] = "p";
  } else if (plan.cut != 1) {
    head["cut"] = plan.cut;
  }
  if (plan.slots != 1) head["slots"] = plan.slots;
  if (plan.scratch_blocks != 0) head["scratch_blocks"] = plan.scratch_blocks;
  if (plan.wide_scratch) head["wide_scratch"] = true;
  if (plan.line_blocks != 0) head["line_blocks"] = plan.line_blocks;
  if (plan.arrives_first) head["arrives_first"] = true;
  if (plan.maps_input) head["maps_input"] = true;
  if (plan.maps_output) head["maps_output"] = true;
  if (plan.single_chunk) head["single_chunk"] = true;
  if (plan.small_bytes != 0) head["small_bytes"] = plan.small_bytes;
  std::string text = "{\n";
  for (const auto& [key, value] : head.items()) {
    text += "  " + OrderedJson(key).dump() + ": " + value.dump() + ",\n";
  }
  return text + "  \"lanes\": [\n" + LanesWriter(plans).write() + "\n  ]\n}\n";
}

}  // namespace hocket::internal
