// A line of PMI-1 from a process manager.
#include "bootstrap/launchers/pmi_line.h"

#include "fuzz/fuzz.h"

namespace hocket::internal {
namespace {

FUZZ_TARGET(pmi_line, input) {
  const std::string_view text = input.text();
  const std::optional<PmiLine> line = parse_pmi_line(text.substr(0, text.find('\n')));
  if (!line) return;
  FUZZ_CHECK(!line->command.empty());
  const std::string written = pmi_text(*line);
  FUZZ_CHECK(written.find('\n') + 1 == written.size());
  const std::optional<PmiLine> again = parse_pmi_line(written.substr(0, written.size() - 1));
  FUZZ_CHECK(again && again->command == line->command && again->fields == line->fields);
  for (const auto& [name, value] : line->fields) {
    FUZZ_CHECK(line->get(name).has_value());
    static_cast<void>(line->number(name));
  }
}

}  // namespace
}  // namespace hocket::internal
