#include "output.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "text.h"

namespace hocket::gpt {
namespace {

std::string dumped(const nlohmann::ordered_json& json) { return json.dump(); }

}  // namespace

void Output::line(const std::string& text) const {
  if (!prints_) return;
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void Output::note(const std::string& text) const {
  line(json_ ? dumped({{"note", printable(text)}}) : text);
}

void Output::step(const Step& s) const {
  if (!prints_) return;
  if (json_) {
    line(training::json_line(s.report, {{"loss", s.loss},
                                        {"learning_rate", s.learning_rate},
                                        {"gradient_norm", s.gradient_norm},
                                        {"tokens_per_s", s.tokens_per_s},
                                        {"epoch", static_cast<double>(s.epoch)},
                                        {"consumed", static_cast<double>(s.consumed)}}));
    return;
  }
  line(fmt::format("step {:>6}  loss {:.4f}  {:>8.0f} tokens/s  rate {:.2e}  {}", s.report.step,
                   s.loss, s.tokens_per_s, s.learning_rate, training::text_line(s.report)));
}

void Output::validation(std::int64_t step, double loss) const {
  if (json_) {
    line(dumped({{"step", step}, {"validation_loss", loss}}));
  } else {
    line(fmt::format("step {:>6}  validation loss {:.4f} ({:.2f} bits a byte)", step, loss,
                     loss / std::log(2.0)));
  }
}

void Output::sample(const std::string& prompt, const std::string& text) const {
  if (json_) {
    line(dumped({{"prompt", printable(prompt)}, {"sample", printable(text)}}));
  } else {
    line(fmt::format("sample:\n{}", printable(text)));
  }
}

}  // namespace hocket::gpt
