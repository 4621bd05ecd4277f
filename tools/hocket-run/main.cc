// hocket-run: starts the ranks of a job, on this host and by ssh on others.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "agent.h"
#include "base/settings.h"
#include "command_line.h"
#include "launcher.h"
#include "programs.h"

namespace hocket::internal::launch {
namespace {

constexpr int usage_status = 125;

/// Opens /dev/null in place of closed standard descriptors. Else the next file, socket or pipe
/// would get the number of a standard descriptor.
void open_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);  // lowest free number
  if (fd >= 0) ::close(fd);
}

int refuse(const Status& status) {
  std::fprintf(stderr, "hocket-run: %s\n", status.message().c_str());
  return usage_status;
}

int launcher_main(int argc, char** argv) {
  CLI::App app("Starts the ranks of a hocket job (or of any program), here and over ssh.");
  CommandLine line;
  describe(&app, &line);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (const Status status = take_own_options(app, &words); !status.ok()) return refuse(status);
  std::ranges::reverse(words);  // CLI11 takes the words in reverse order
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_status;
  }
  if (line.show_settings) {
    std::fputs(settings_text().c_str(), stdout);
    return 0;
  }
  Settings settings;
  if (const Status status = read_settings(environ, &settings); !status.ok()) return refuse(status);
  for (const std::string& name : settings.unknown) {
    std::fprintf(stderr, "hocket-run: warning: %s\n", unknown_setting_text(name).c_str());
  }
  Status status = take_programs(app.remaining(), &line.options.programs);
  if (status.ok()) status = complete(&line, settings, app.count("--ssh") != 0);
  if (!status.ok()) return refuse(status);
  return Launcher(std::move(line.options), std::move(settings)).run();
}

}  // namespace
}  // namespace hocket::internal::launch

int main(int argc, char** argv) {
  hocket::internal::launch::open_standard_descriptors();
  // hocket-run starts its agents with this option; users do not.
  if (argc == 2 && std::strcmp(argv[1], "--agent") == 0)
    return hocket::internal::launch::agent_main();
  return hocket::internal::launch::launcher_main(argc, argv);
}
