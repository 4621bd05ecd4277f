// What other modules say of the registry of algorithms, which they cannot include.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "base/settings.h"
#include "plans.h"

namespace hocket::internal {
namespace {

TEST(Registry, has_the_algorithms_that_the_setting_names) {
  std::multiset<std::string> named;
  const auto info = std::ranges::find(settings_table(), std::string_view("HOCKET_ALGORITHM"),
                                      [](const SettingInfo& row) { return row.name; });
  ASSERT_NE(info, settings_table().end());
  std::istringstream allowed(info->allowed);
  for (std::string name; std::getline(allowed, name, '|');) named.insert(name);

  std::set<std::string> built;  // a collective has a selection; a send and a receive have none
  for (const Builder& builder : builders()) {
    if (!is_p2p(builder.collective)) built.insert(builder.algorithm);
  }
  EXPECT_EQ(std::multiset<std::string>(built.begin(), built.end()), named);
}

}  // namespace
}  // namespace hocket::internal
