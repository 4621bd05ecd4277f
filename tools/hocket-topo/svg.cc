#include "svg.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace hocket::topo {

namespace {

constexpr int column = 140, row = 90, left = 70, top = 70;

int x_of(std::uint32_t rank) { return left + static_cast<int>(rank) * column; }
int y_of(std::uint32_t time) { return top + static_cast<int>(time) * row; }

/// number: of the arrow among those of its rank at that time, so that their labels lie apart.
std::string text_of(const Arrow& arrow, int number) {
  const int x = x_of(arrow.from), y = y_of(arrow.time);
  const int to_x = x_of(arrow.to), to_y = arrow.message ? y_of(arrow.time + 1) : y;
  // A straight line between two columns; an arc where the memory of a peer is accessed.
  std::string path = fmt::format("M {} {} L {} {}", x, y, to_x, to_y);
  int label_x = x + (to_x - x) * (2 + number % 3) / 8,
      label_y = y + (to_y - y) * (2 + number % 3) / 8;
  if (!arrow.message) {
    const int bend = y + row / 4 + 6 * number;
    path = fmt::format("M {} {} Q {} {} {} {}", x, y, (x + to_x) / 2, bend, to_x, to_y);
    label_x = (x + to_x) / 2;
    label_y = (y + bend) / 2;
  }
  std::string text = fmt::format("<path d=\"{}\" class=\"{}\" marker-end=\"url(#head)\"/>\n", path,
                                 arrow.message ? "message" : "access");
  if (!arrow.label.empty()) {
    text += fmt::format("<text x=\"{}\" y=\"{}\" class=\"label\">{}</text>\n", label_x, label_y - 4,
                        arrow.label);
  }
  return text;
}

}  // namespace

std::string svg_of(const std::string& title, std::uint32_t ranks, const Walk& walk) {
  const int width = x_of(ranks - 1) + left, height = y_of(walk.end) + top / 2;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<style>.message{{stroke:#1a5fb4;fill:none}}.access{{stroke:#777;fill:none;"
      "stroke-dasharray:4 3}}.label{{fill:#333;text-anchor:middle}}.line{{stroke:#ccc}}</style>\n"
      "<defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"3\" "
      "orient=\"auto\"><path d=\"M 0 0 L 7 3 L 0 6 z\" fill=\"#1a5fb4\"/></marker></defs>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      width, height, left / 2, title);
  for (std::uint32_t time = 0; time <= walk.end; ++time) {
    text += fmt::format("<text x=\"12\" y=\"{}\" class=\"time\">{}</text>\n", y_of(time) + 4, time);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    text += fmt::format(
        "<text x=\"{0}\" y=\"{1}\" class=\"label\">rank {2}</text>\n"
        "<line x1=\"{0}\" y1=\"{3}\" x2=\"{0}\" y2=\"{4}\" class=\"line\"/>\n",
        x_of(rank), top - 18, rank, top - 8, y_of(walk.end) + 8);
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> numbers;  // by time and rank
  for (const Arrow& arrow : walk.arrows) {
    text += text_of(arrow, numbers[{arrow.time, arrow.from}]++);
  }
  return text + "</svg>\n";
}

}  // namespace hocket::topo
