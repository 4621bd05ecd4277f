#include "command_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/limits.h"
#include "bootstrap/net/address.h"
#include "coordinator_listener.h"
#include "foreign_options.h"

namespace hocket::internal::launch {
namespace {

/// True for an address, which belongs to a single host; an interface name is valid on all hosts.
bool is_address(const std::string& interface) {
  Address address;
  return parse_address(interface, &address).ok() && address.port == 0;
}

/// Adds the variables that ranks on other hosts receive from this environment: HOCKET_*, PATH and
/// LD_LIBRARY_PATH.
void carry_environment(const Options& options, std::vector<std::string>* environment) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_of(*entry);
    const bool wanted = name == "PATH" || name == "LD_LIBRARY_PATH" || name.starts_with("HOCKET_");
    if (!wanted || set_by_launcher(name)) continue;  // set by the launcher of this process
    if (name == "HOCKET_INTERFACE" && is_address(*entry + name.size() + 1)) continue;
    const auto same = [&](const std::string& given) { return name_of(given) == name; };
    if (std::ranges::none_of(options.environment, same)) environment->emplace_back(*entry);
  }
  environment->insert(environment->end(), options.environment.begin(), options.environment.end());
}

/// Adds LD_PRELOAD with libhocket_heap.so, which lies where the other libraries of this program do,
/// before what LD_PRELOAD has already.
Status preload_heap(std::vector<std::string>* environment) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path prefix = self.parent_path().parent_path();
  std::string library;
  for (const char* const folder : {HOCKET_LIBRARY_FOLDER, "lib"}) {
    library = prefix / folder / "libhocket_heap.so";
    if (std::filesystem::exists(library, error)) break;
    library.clear();
  }
  if (library.empty()) {
    return invalid_argument("--shared-heap: there is no libhocket_heap.so in " +
                            (prefix / HOCKET_LIBRARY_FOLDER).string() +
                            ": install hocket's libraries beside hocket-run");
  }
  if (library.find_first_of(" :") != std::string::npos) {
    return invalid_argument("--shared-heap: the path of '" + library +
                            "' has a space or a colon, which LD_PRELOAD does not allow: install "
                            "hocket elsewhere");
  }
  const std::string name = "LD_PRELOAD=";
  for (std::string& given : *environment) {
    if (!given.starts_with(name)) continue;
    given.insert(name.size(), library + (given.size() > name.size() ? ":" : ""));
    return {};
  }
  const char* const before = std::getenv("LD_PRELOAD");
  const bool has_more = before != nullptr && *before != '\0';
  environment->push_back(name + library + (has_more ? ":" + std::string(before) : ""));
  return {};
}

struct Help : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "usage: hocket-run -n RANKS [--hosts A:2,B:2] [options] PROGRAM [ARGUMENTS...] [: -n "
           "RANKS PROGRAM ...]\n\n";
  }
};

Status take_hosts(const CommandLine& line, Options* options) {
  if (line.host_file.empty()) {
    return line.hosts.empty() ? Status() : parse_hosts(line.hosts, &options->hosts);
  }
  if (!line.hosts.empty()) {
    return invalid_argument("--hosts and --hostfile both name the hosts; write only one of them");
  }
  options->hosts_source = line.host_file;
  return read_host_file(line.host_file, &options->hosts);
}

/// Where the ranks run.
void describe_places(CLI::App* app, CommandLine* line) {
  app->add_option("-n", line->options.ranks, "Number of ranks; -np and --np are the same")
      ->check(CLI::Range(1, max_ranks))
      ->option_text("RANKS");
  app->add_option(
         "-H,--host,--hosts", line->hosts,
         "Hosts, and the largest number of ranks on each (default 1). HOST may be a list as Slurm "
         "writes it: 'h[1-2]'. Ranks fill the hosts in this order, if --map-by says nothing else. "
         "Default: this host")
      ->option_text("HOST[:RANKS],...");
  app->add_option("--hostfile", line->host_file,
                  "File with a host on each line: HOST, HOST:RANKS or HOST slots=RANKS")
      ->option_text("FILE");
  app->add_option("--ssh", line->options.ssh,
                  "Command that reaches a host. Default: HOCKET_SSH, else ssh")
      ->option_text("COMMAND");
  app->add_option(
         "--interface", line->options.interface,
         "Network interface or address on which rank 0's host listens for the other ranks. "
         "Default: HOCKET_INTERFACE, else the address that ssh used, or the address that "
         "routes to the other hosts; for a job on this host alone 127.0.0.1")
      ->option_text("NAME");
  app->add_option("--map-by", line->map_by,
                  "Ranks fill host after host (slot, the default), go to the hosts in turn (node), "
                  "or to the L3 caches, NUMA nodes or sockets of each host in turn. ppr:N: before "
                  "node, core, l3cache, numa or socket: N ranks for each host, or for each such "
                  "part of all hosts. :PE=N: a rank needs N cores")
      ->option_text("slot|node|core|l3cache|numa|socket|ppr:N:...[:PE=N]");
  app->add_option(
         "--bind-to", line->bind_to,
         "Bind each rank to its own share of the cores of its host, or to an L3 cache, NUMA "
         "node or socket. Default: what --map-by names; none")
      ->check(CLI::IsMember({"core", "l3cache", "numa", "socket", "package", "none"}))
      ->option_text("core|l3cache|numa|socket|none");
  app->add_flag("--report-bindings", line->options.report_bindings,
                "Say on which CPUs each rank runs");
  app->add_flag("--show-placement", line->options.show_placement,
                "Say on which host and CPUs each rank would run, and start no rank");
}

/// How the ranks run, and how they end.
void describe_ranks(CLI::App* app, CommandLine* line) {
  app->add_flag("--tag-output", line->options.tag_output, "Begin every line with [RANK]");
  app->add_flag("--pty", line->options.pty,
                "Give each rank a pseudo terminal as standard output and standard error, so that "
                "the C library of a program writes every line at once. Both streams then are "
                "standard output");
  app->add_option(
         "--on-death", line->on_death,
         "When a rank fails: `end` the others 2 s later (so that they can report the error), "
         "or let them `continue`")
      ->check(CLI::IsMember({"end", "continue"}))
      ->option_text("end|continue");
  app->add_option(
         "-x,--env", line->environment,
         "Environment variable for all ranks; NAME alone has its value on this host. May be "
         "repeated. All ranks receive HOCKET_*, PATH and LD_LIBRARY_PATH in any case")
      ->allow_extra_args(false)
      ->option_text("NAME[=VALUE]");
  app->add_flag("--shared-heap", line->shared_heap,
                "Place blocks of malloc of 16 KiB and more in memory that the ranks of a host map, "
                "so that collectives need no copy of them: as memory of hocketMemAlloc. By "
                "LD_PRELOAD; fork() copies these blocks");
  app->add_option("--wdir", line->options.directory,
                  "Working directory of the ranks. Default: that of hocket-run")
      ->option_text("DIRECTORY");
  app->add_option("--timeout", line->options.timeout_s,
                  "End the job after this time, with exit status 124")
      ->check(CLI::Range(0.001, 1e9))
      ->option_text("SECONDS");
  app->add_option("--output-dir", line->options.output_directory,
                  "Write the output of the ranks to rank.R.out and rank.R.err in this directory")
      ->option_text("DIRECTORY");
}

}  // namespace

void describe(CLI::App* app, CommandLine* line) {
  app->name("hocket-run");
  app->failure_message([](const CLI::App*, const CLI::Error& error) {
    return "hocket-run: " + std::string(error.what()) + "; see hocket-run --help\n";
  });
  app->formatter(std::make_shared<Help>());
  app->footer(
      "Exit status: 0 if every rank's is 0, else that of what failed first: a rank's own (128 + "
      "signal if a signal killed it), 137 if a host was lost, 141 if standard output or a file of "
      "--output-dir could not be written, 124 if the time of --timeout passed, 125 if the job "
      "could not be started or an agent failed. 128 + signal if one came "
      "before the ranks were started.");
  describe_places(app, line);
  describe_ranks(app, line);
  app->add_flag("--settings", line->show_settings, "List the HOCKET_* variables and exit");
  app->set_version_flag("--version", "hocket-run " HOCKET_VERSION_TEXT);
  app->prefix_command();
}

Status take_own_options(const CLI::App& app, std::vector<std::string>* words) {
  for (std::size_t i = 0; i < words->size(); ++i) {
    std::string& word = (*words)[i];
    if (word == "--" || !word.starts_with('-')) return {};
    word = own_spelling(word);
    const CLI::Option* own = app.get_option_no_throw(word.substr(0, word.find('=')));
    if (own != nullptr) {
      const bool value_follows = own->get_expected_min() > 0 && word.find('=') == std::string::npos;
      i += value_follows ? 1 : 0;
    } else if (const std::string remedy = remedy_for_foreign_option(word); !remedy.empty()) {
      return invalid_argument("hocket-run has no option " + word + ": " + remedy);
    }
  }
  return {};
}

Status complete(CommandLine* line, const Settings& settings, bool ssh_given) {
  Options& options = line->options;
  options.end_on_death = line->on_death == "end";
  HOCKET_RETURN_IF_ERROR(parse_map_by(line->map_by, &options.map_by));
  HOCKET_RETURN_IF_ERROR(binding_rules(line->bind_to, options.map_by, &options.binding));
  if (!ssh_given && !settings.ssh.empty()) options.ssh = settings.ssh;
  HOCKET_RETURN_IF_ERROR(take_hosts(*line, &options));
  HOCKET_RETURN_IF_ERROR(count_ranks(&options));
  HOCKET_RETURN_IF_ERROR(complete_hosts(options.map_by, options.ranks, &options.hosts));
  if (!options.map_by.needs_parts()) HOCKET_RETURN_IF_ERROR(place_ranks(&options));
  for (HostSlots& host : options.hosts)
    host.remote = !host.name.empty() && !is_this_host(host.name);

  std::vector<std::string> given;
  HOCKET_RETURN_IF_ERROR(parse_environment(line->environment, &given));
  if (!options.interface.empty() && !is_address(options.interface))
    given.push_back("HOCKET_INTERFACE=" + options.interface);
  if (options.interface.empty()) options.interface = settings.interface;
  if (line->shared_heap) HOCKET_RETURN_IF_ERROR(preload_heap(&given));
  options.environment = std::move(given);
  std::vector<std::string> all;
  carry_environment(options, &all);
  options.environment = std::move(all);
  return {};
}

}  // namespace hocket::internal::launch
