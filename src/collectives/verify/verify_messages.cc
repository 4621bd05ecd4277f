#include "collectives/verify/verify_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "collectives/verify/verify_form.h"

namespace hocket::internal::verify_detail {

namespace {
constexpr std::uint64_t no_item = ~std::uint64_t{0};  // of an empty message
constexpr std::uint64_t any_item = no_item - 1;       // of blocks that are passed on
}  // namespace

/// One end of a message.
struct Messages::End {
  std::uint32_t from, to, tag;
  bool receives;
  std::uint32_t rank, lane, instance, step;
  std::uint64_t item;    // of its first block
  std::uint32_t blocks;  // that it carries

  std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> key() const { return {from, to, tag}; }
};

void Messages::collect(const Plan& plan, std::vector<End>& ends) {
  std::vector<LaneTable>& tables = tables_.emplace_back(plan.lanes.size());
  const std::uint32_t rank = plan.shape.rank;
  for (std::uint32_t l = 0; l < plan.lanes.size(); ++l) {
    const Lane& lane = plan.lanes[l];
    LaneTable& table = tables[l];
    for (const Step& step : lane.steps) {
      table.ordinals.push_back(table.per_instance);
      if (is_message(step)) ++table.per_instance;
    }
    table.numbers.resize(std::size_t{lane.instances} * table.per_instance);
    for (std::uint32_t s = 0; s < lane.steps.size(); ++s) {
      const Step& step = lane.steps[s];
      if (!is_message(step)) continue;
      const bool receives = step.kind == StepKind::recv;
      for (std::uint32_t i = 0; i < lane.instances; ++i) {
        const auto peer = static_cast<std::uint32_t>(step.peer.at(i));
        const std::uint64_t item = !moves_data(step)             ? no_item
                                   : passes_on(plan, lane, step) ? any_item
                                                                 : item_of(plan, lane, step, i, 0);
        ends.push_back({receives ? peer : rank, receives ? rank : peer,
                        static_cast<std::uint32_t>(step.tag.at(i)), receives, rank, l, i, s, item,
                        step.repeat});
      }
    }
  }
}

/// The first block of two ends, each of `first.blocks` blocks, that is another item on one side
/// than on the other; first.blocks: none.
std::uint32_t Messages::other_block(std::span<const Plan> plans, const End& first,
                                    const End& second) {
  if (first.item != second.item) return 0;
  if (first.item == no_item || first.item == any_item) return first.blocks;
  const auto item = [&](const End& end, std::uint32_t block) {
    const Lane& lane = plans[end.rank].lanes[end.lane];
    return item_of(plans[end.rank], lane, lane.steps[end.step], end.instance, block);
  };
  std::uint32_t block = 1;
  while (block < first.blocks && item(first, block) == item(second, block)) ++block;
  return block;
}

std::string Messages::item_text(std::uint64_t item) {
  return item == no_item    ? std::string("nothing")
         : item == any_item ? std::string("blocks to pass on")
                            : fmt::format("item {}", item);
}

Status Messages::match(std::span<const Plan> plans) {
  std::vector<End> ends;
  tables_.clear();
  for (const Plan& plan : plans) collect(plan, ends);
  std::ranges::sort(ends, {}, [](const End& end) { return std::pair(end.key(), end.receives); });
  const auto is_wrong = [&](const End& end, const std::string& what) {
    return wrong(name_of_step(plans[end.rank], end.lane, end.instance, end.step), what);
  };
  size_ = 0;
  for (std::size_t i = 0; i < ends.size(); i += 2) {
    const End& first = ends[i];
    const End* const second =
        i + 1 < ends.size() && ends[i + 1].key() == first.key() ? &ends[i + 1] : nullptr;
    if (second != nullptr && first.receives == second->receives) {
      return is_wrong(*second,
                      fmt::format("uses tag {} between rank {} and rank {}, which {} uses too",
                                  first.tag, first.from, first.to,
                                  name_of_lane(plans[first.rank], first.lane, first.instance)));
    }
    if (second == nullptr) {
      return is_wrong(
          first,
          first.receives
              ? fmt::format("receives tag {}, which rank {} does not send", first.tag, first.from)
              : fmt::format("sends tag {}, which rank {} does not receive", first.tag, first.to));
    }
    if (first.item != second->item) {
      return is_wrong(*second, fmt::format("receives {}, but rank {} sends {} with tag {}",
                                           item_text(second->item), first.from,
                                           item_text(first.item), first.tag));
    }
    const auto lane_of = [&](const End& end) -> const Lane& {
      return plans[end.rank].lanes[end.lane];
    };
    const bool alike = (first.item != no_item && has_equal_blocks(plans[first.rank])) ||
                       same_chunks(plans[first.rank], lane_of(first), first.instance,
                                   plans[second->rank], lane_of(*second), second->instance);
    if (!alike) {
      return is_wrong(*second,
                      fmt::format("has other chunks than {}",
                                  name_of_lane(plans[first.rank], first.lane, first.instance)));
    }
    const auto when_of = [&](const End& end) { return lane_of(end).steps[end.step].when; };
    if (when_of(first) != when_of(*second)) {
      return is_wrong(*second, fmt::format("receives tag {} for other blocks than rank {} sends it",
                                           first.tag, first.from));
    }
    if (first.blocks != second->blocks) {
      return is_wrong(*second, fmt::format("receives {} blocks, but rank {} sends {} with tag {}",
                                           second->blocks, first.from, first.blocks, first.tag));
    }
    if (const std::uint32_t block = other_block(plans, first, *second); block < first.blocks) {
      return is_wrong(*second,
                      fmt::format("receives, as block {} of the message, another item than rank {} "
                                  "sends with tag {}",
                                  block, first.from, first.tag));
    }
    for (const End* end : {&first, second}) {
      LaneTable& table = tables_[end->rank][end->lane];
      table.numbers[std::size_t{end->instance} * table.per_instance + table.ordinals[end->step]] =
          size_;
    }
    ++size_;
  }
  return {};
}

}  // namespace hocket::internal::verify_detail
