// What rank 0 prints: lines for a reader, or lines of JSON.
#pragma once

#include <hocket/training/report.hpp>
#include <map>
#include <string>

namespace hocket::gpt {

/// Other ranks than 0 print nothing. Every line is flushed.
class Output {
 public:
  Output(bool prints, bool json) : prints_(prints), json_(json) {}

  /// A remark: in JSON {"note": text}.
  void note(const std::string& text) const;
  struct Step {
    training::StepReport report;
    double loss = 0, learning_rate = 0, gradient_norm = 0, tokens_per_s = 0;
    std::uint64_t epoch = 0, consumed = 0;  // where the sampler is
  };
  void step(const Step& step) const;
  void validation(std::int64_t step, double loss) const;
  void sample(const std::string& prompt, const std::string& text) const;

 private:
  void line(const std::string& text) const;
  bool prints_, json_;
};

}  // namespace hocket::gpt
