#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <map>

namespace hocket::gpt {
namespace {

constexpr double huge = std::numeric_limits<double>::max();
constexpr std::int64_t most = std::int64_t{1} << 40;

const std::map<std::string, Strategy> strategies = {{"none", Strategy::none},
                                                    {"dp", Strategy::dp},
                                                    {"ddp", Strategy::ddp},
                                                    {"zero1", Strategy::zero1},
                                                    {"zero2", Strategy::zero2}};

/// What CLI11 stores before it is checked together.
struct Pending {
  std::string strategy = "ddp", dtype = "fp32", report = "line", optimizer = "hocket";
};

template <typename T>
CLI::Option* number(CLI::App& app, const char* name, T* value, T least, T greatest,
                    const char* about) {
  return app.add_option(name, *value, about)
      ->check(CLI::Range(least, greatest))
      ->capture_default_str();
}

void describe_model(CLI::App& app, Options* o, Pending* pending) {
  number<std::int64_t>(app, "--layers", &o->layers, 1, 1000, "Blocks of the model");
  number<std::int64_t>(app, "--width", &o->width, 1, 1 << 20, "Width of the model");
  number<std::int64_t>(app, "--heads", &o->heads, 1, 1 << 20, "Heads of attention: divide --width");
  number<std::int64_t>(app, "--sequence", &o->sequence, 2, 1 << 20,
                       "Bytes of text that the model sees at once");
  app.add_option("--dtype", pending->dtype,
                 "Type of the computation: bf16 computes products in bfloat16 (autocast); weights "
                 "stay fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_flag("--checkpoint-activations", o->checkpoint_activations,
               "Compute each block's activations again in backward: less memory, more time");
}

void describe_training(CLI::App& app, Options* o, Pending* pending) {
  app.add_option(
         "--strategy", pending->strategy,
         "none: no communication; dp: one process, replicas in threads; ddp: every rank has "
         "all; zero1: optimizer state is sharded; zero2: gradients too")
      ->check(CLI::IsMember({"none", "dp", "ddp", "zero1", "zero2"}))
      ->capture_default_str();
  number<std::int64_t>(app, "--batch", &o->batch, 1, 1 << 20,
                       "Sequences of each rank in one forward");
  number<std::int64_t>(app, "--accumulate", &o->accumulate, 1, 1 << 20,
                       "Forwards and backwards of each rank in a step");
  number<std::int64_t>(app, "--steps", &o->steps, 1, most,
                       "Steps of the whole training, those before --resume included. Without "
                       "--steps and --seconds: 500")
      ->default_str("");
  number<double>(app, "--seconds", &o->seconds, 0.001, 1e9, "Seconds that this run trains")
      ->default_str("");
  number<double>(app, "--learning-rate", &o->learning_rate, 0, huge,
                 "The largest: it rises over --warm-up steps and falls to a tenth as a cosine");
  number<std::int64_t>(app, "--warm-up", &o->warm_up, 0, most, "Steps of rising learning rate");
  number<double>(app, "--weight-decay", &o->weight_decay, 0, huge, "Of AdamW");
  number<double>(app, "--clip", &o->clip, 0, huge, "Largest norm of all gradients; 0: any");
  app.add_option("--optimizer", pending->optimizer, "AdamW of hocket or of torch")
      ->check(CLI::IsMember({"hocket", "torch"}))
      ->capture_default_str();
  number<std::uint64_t>(app, "--seed", &o->seed, 0, std::numeric_limits<std::uint64_t>::max() >> 1,
                        "Of the weights, the order of the text, and the sample");
  number<int>(app, "--threads", &o->threads, 1, 4096, "Threads of each rank's computation");
  number<int>(app, "--replicas", &o->replicas, 1, 4096, "Replicas of --strategy dp");
}

void describe_rest(CLI::App& app, Options* o, Pending* pending) {
  app.add_option("--save", o->save, "Folder that receives the checkpoints")->option_text("DIR");
  number<std::int64_t>(app, "--save-every", &o->save_every, 1, most,
                       "Steps between checkpoints; without it, one at the end")
      ->default_str("");
  app.add_option("--resume", o->resume,
                 "Folder of a checkpoint. The number of ranks and the strategy may be others")
      ->option_text("DIR");
  number<std::int64_t>(app, "--validate-every", &o->validate_every, 1, most,
                       "Steps between validations; without it, one at the end")
      ->default_str("");
  app.add_option("--report", pending->report, "A line for a reader, or a line of JSON")
      ->check(CLI::IsMember({"line", "json"}))
      ->capture_default_str();
  number<std::int64_t>(app, "--report-every", &o->report_every, 1, most,
                       "Steps between reports. Default: 10, with json 1")
      ->default_str("");
  app.add_option("--trace", o->trace,
                 "File for the times of all ranks, to be opened in ui.perfetto.dev")
      ->option_text("FILE");
  app.add_option("--record-samples", o->record_samples,
                 "Folder for a file of each rank: step, epoch and the numbers of the sequences")
      ->option_text("DIR");
  number<std::int64_t>(app, "--sample", &o->sample, 0, 1 << 20,
                       "Bytes of text that the model writes at the end");
  app.add_option("--prompt", o->prompt, "What the sample goes on from (default: a new line)")
      ->option_text("TEXT");
  number<double>(app, "--temperature", &o->temperature, 0, 1e3, "Of the sample; 0: the likeliest");
  number<std::int64_t>(app, "--top-k", &o->top_k, 1, 256, "The sample has only the K likeliest");
}

/// An error text if values do not fit together.
std::string check_combination(Options* o) {
  if (o->width % o->heads != 0) {
    return fmt::format("--heads {} must divide --width {}", o->heads, o->width);
  }
  if (o->save_every > 0 && o->save.empty()) return "--save-every needs --save DIR";
  if (o->torch_optimizer && (o->strategy == Strategy::none || o->strategy == Strategy::dp)) {
    return fmt::format("--optimizer torch needs --strategy ddp, zero1 or zero2, not {}",
                       name_of(o->strategy));
  }
  if (o->prompt.empty()) return "--prompt needs at least one byte";
  if (o->steps == 0 && o->seconds == 0) o->steps = 500;
  if (o->report_every == 0) o->report_every = o->json ? 1 : 10;
  return {};
}

}  // namespace

const char* name_of(Strategy strategy) {
  for (const auto& [name, value] : strategies) {
    if (value == strategy) return name.c_str();
  }
  return "?";
}

std::optional<int> parse_options(int argc, char** argv, Options* options, std::string* text) {
  CLI::App app(
      "Trains a small GPT over the bytes of any UTF-8 text, on all ranks of a job:\n"
      "  hocket-run -n 2 hocket-train-gpt --text book.txt --seconds 60 --save out\n"
      "  hocket-run -n 3 hocket-train-gpt --text book.txt --seconds 60 --resume out");
  app.name("hocket-train-gpt");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("hocket-train-gpt: {}; see hocket-train-gpt --help\n", error.what());
  });
  app.footer(
      "SIGINT and SIGTERM end the training after the step that runs, with a checkpoint if --save "
      "is "
      "given. Exit status: 0; 1: an error of a rank; 2: wrong options.");
  Pending pending;
  app.add_option("--text", options->text, "The text: a file in UTF-8")
      ->required()
      ->option_text("FILE");
  describe_model(app, options, &pending);
  describe_training(app, options, &pending);
  describe_rest(app, options, &pending);
  std::ostringstream out, errors;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error, out, errors);
    *text = status == 0 ? out.str() : errors.str();
    return status == 0 ? 0 : 2;
  }
  options->strategy = strategies.at(pending.strategy);
  options->bfloat16 = pending.dtype == "bf16";
  options->json = pending.report == "json";
  options->torch_optimizer = pending.optimizer == "torch";
  if (const std::string problem = check_combination(options); !problem.empty()) {
    *text = fmt::format("hocket-train-gpt: {}; see hocket-train-gpt --help\n", problem);
    return 2;
  }
  return std::nullopt;
}

std::string text_of(const Options& o) {
  return fmt::format(
      "strategy {}, model {} x {} x {} x {}, {}, batch {} x {}, steps {}, seconds {}, learning "
      "rate "
      "{}, warm-up {}, weight decay {}, clip {}, seed {}, {}, save '{}' every {}, resume '{}', "
      "validate every {}, report every {}, trace '{}', sample {}",
      name_of(o.strategy), o.layers, o.width, o.heads, o.sequence, o.bfloat16 ? "bf16" : "fp32",
      o.batch, o.accumulate, o.steps, o.seconds, o.learning_rate, o.warm_up, o.weight_decay, o.clip,
      o.seed, o.torch_optimizer ? "torch" : "hocket", o.save, o.save_every, o.resume,
      o.validate_every, o.report_every, o.trace, o.sample);
}

}  // namespace hocket::gpt
