// code_of(): a C++ source with comments, literals and preprocessor lines replaced by blanks.
#include <gtest/gtest.h>

#include <cctype>

#include "rules/tree.h"

namespace rules {
namespace {

/// Reads a source once and replaces everything that is not code by blanks.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : text_(text), out_(text) {}

  std::string run() {
    while (here_ < text_.size()) step();
    return out_;
  }

 private:
  void step() {
    if (text_[here_] == '\n') {
      line_begins_ = true;
      ++here_;
    } else if (line_begins_ && text_[here_] == '#') {
      blank_to(end_of_directive());
    } else if (looking_at("//")) {
      blank_to(text_.find('\n', here_));
    } else if (looking_at("/*")) {
      blank_to(after(text_.find("*/", here_ + 2), 2));
    } else if (looking_at("R\"")) {
      const std::size_t open = text_.find('(', here_);
      const std::string close = ")" + text_.substr(here_ + 2, open - here_ - 2) + "\"";
      blank_to(after(text_.find(close, open), close.size()));
    } else if (text_[here_] == '"' || (text_[here_] == '\'' && !in_number())) {
      blank_to(end_of_literal());
    } else {
      line_begins_ = line_begins_ && std::isspace(static_cast<unsigned char>(text_[here_])) != 0;
      ++here_;
    }
  }

  bool looking_at(std::string_view what) const {
    return std::string_view(text_).substr(here_).starts_with(what);
  }
  bool in_number() const {  // 600'000
    return here_ > 0 && std::isxdigit(static_cast<unsigned char>(text_[here_ - 1])) != 0;
  }
  static std::size_t after(std::size_t found, std::size_t length) {
    return found == std::string::npos ? found : found + length;
  }
  std::size_t end_of_directive() const {
    std::size_t end = text_.find('\n', here_);
    while (end != std::string::npos && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    return end;
  }
  std::size_t end_of_literal() const {
    const char quote = text_[here_];
    std::size_t end = here_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    return end + 1;
  }
  void blank_to(std::size_t end) {
    for (end = std::min(end, text_.size()); here_ < end; ++here_) {
      if (text_[here_] != '\n') out_[here_] = ' ';
    }
  }

  const std::string& text_;
  std::string out_;
  std::size_t here_ = 0;
  bool line_begins_ = true;
};

TEST(Rules, comments_literals_and_directives_are_no_code) {
  const struct {
    const char* text;
    const char* code;
  } cases[] = {
      {"a; // {\nb;", "a;     \nb;"},   {"a; /* {\n */ b;", "a;     \n    b;"},
      {"f(\"{\\\"\");", "f(      );"},  {"c = '{';", "c =    ;"},
      {"n = 600'000;", "n = 600'000;"}, {"#define X { \\\n  {\nx", "           \n   \nx"},
      {"R\"({\")\" x", "         x"},
  };
  for (const auto& test : cases) {
    std::string expected = test.code;
    std::string got = code_of(test.text);
    // Blanks at line ends do not matter.
    const auto squeeze = [](std::string text) {
      text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
      return text;
    };
    EXPECT_EQ(squeeze(got), squeeze(expected)) << test.text;
    EXPECT_EQ(got.size(), std::string(test.text).size());
  }
}

}  // namespace

std::string code_of(const std::string& text) { return Blanker(text).run(); }

}  // namespace rules
