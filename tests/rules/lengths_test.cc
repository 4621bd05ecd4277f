// Files of at most 800 lines, functions of at most 70, lines of at most 100 columns. Examples of
// under 100 lines, and at least ten of them.
#include <gtest/gtest.h>

#include <regex>

#include "rules/tree.h"

namespace rules {
namespace {

constexpr std::size_t most_file_lines = 800;
constexpr std::size_t most_example_lines = 99;
constexpr std::ptrdiff_t least_examples = 10;
constexpr std::size_t most_function_lines = 70;
constexpr std::size_t most_columns = 100;

/// Finds function bodies by braces: a block outside any function whose head has a parenthesis and
/// is no class or namespace. Lambdas count as part of the function around them.
class FunctionFinder {
 public:
  FunctionFinder(std::string path, const std::string& text)
      : path_(std::move(path)), code_(code_of(text)) {}

  Complaints too_long() {
    for (std::size_t i = 0; i < code_.size(); ++i) {
      if (code_[i] == '\n') ++line_;
      if (code_[i] == '{') open(i);
      if (code_[i] == '}') close(i);
      if (code_[i] == ';' && body_depth_ == 0) head_ = i + 1;
    }
    return complaints_;
  }

 private:
  void open(std::size_t i) {
    ++depth_;
    if (body_depth_ > 0) return;
    static const std::regex scope(
        "^\\s*(template\\s*<[^{]*>\\s*)?((inline\\s+)?namespace|class|struct|union|enum|extern)"
        "\\b");
    const std::string head = code_.substr(head_, i - head_);
    if (!std::regex_search(head, scope) && head.find('(') != std::string::npos) {
      body_depth_ = depth_;
      body_line_ = line_;
    } else {
      head_ = i + 1;
    }
  }

  void close(std::size_t i) {
    if (body_depth_ == depth_) {
      const std::size_t lines = line_ - body_line_ + 1;
      if (lines > most_function_lines) {
        complaints_.push_back(at(path_, body_line_,
                                 "a function of " + std::to_string(lines) + " lines: at most " +
                                     std::to_string(most_function_lines)));
      }
      body_depth_ = 0;
      // A constructor's `: member{1}, other{2} { ... }` is one head until its body.
      const std::size_t next = code_.find_first_not_of(" \n", i + 1);
      const bool goes_on = next != std::string::npos && (code_[next] == ',' || code_[next] == '{');
      if (!goes_on) head_ = i + 1;
    } else if (body_depth_ == 0) {
      head_ = i + 1;
    }
    --depth_;
  }

  std::string path_;
  std::string code_;
  Complaints complaints_;
  std::size_t line_ = 1, head_ = 0, body_line_ = 0;
  int depth_ = 0, body_depth_ = 0;
};

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

bool is_example(const std::string& path) {
  return path.starts_with("examples/") && is_source(path);
}

/// A program writes plots.
bool is_plot(const std::string& path) { return path.ends_with(".svg"); }
bool is_prose(const std::string& path) { return path.ends_with(".md") || path == "LICENSE"; }

Complaints check(const File& file) {
  if (is_plot(file.path)) return {};
  Complaints complaints;
  if (is_source(file.path)) complaints = FunctionFinder(file.path, file.text).too_long();
  const std::vector<std::string> lines = lines_of(file.text);
  const std::size_t most = is_example(file.path) ? most_example_lines : most_file_lines;
  if (lines.size() > most) {
    complaints.push_back(file.path + ": " + std::to_string(lines.size()) + " lines: at most " +
                         std::to_string(most));
  }
  for (std::size_t i = 0; i < lines.size() && !is_prose(file.path); ++i) {
    if (columns(lines[i]) > most_columns) {
      complaints.push_back(at(file.path, i + 1, "more than 100 columns"));
    }
  }
  return complaints;
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Rules, what_is_too_long_is_found) {
  const std::string body = repeat("  x();\n", 69);
  const struct {
    std::string name;
    std::string text;
    bool allowed;
    const char* path = "src/a.cc";
  } cases[] = {
      {"a function of 70 lines", "void f() {\n" + repeat("  x();\n", 68) + "}\n", true},
      {"a function of 71 lines", "void f() {\n" + body + "}\n", false},
      {"a method", "namespace n {\nclass C {\n  void f() const {\n" + body + "  }\n};\n}\n", false},
      {"a constructor", "C::C(int a) : a_{a}, b_{2} {\n" + body + "}\n", false},
      {"a test", "TEST(A, b) {\n" + body + "}\n", false},
      {"a template", "template <typename T>\nT f(T t) {\n" + body + "}\n", false},
      {"a struct with an alignment",
       "struct alignas(128) S {\n" + repeat("  int a;\n", 90) + "};\n", true},
      {"two short functions", repeat("void f() {\n" + repeat("x();\n", 40) + "}\n", 2), true},
      {"braces in comments and strings", repeat("void f() {\n// {\ng(\"{\");\n}\n", 30), true},
      {"a long table", "const int t[] = {\n" + repeat("  1,\n", 100) + "};\n", true},
      {"100 columns", std::string(100, 'x') + "\n", true},
      {"101 columns", std::string(101, 'x') + "\n", false},
      {"100 columns of two bytes each", repeat("\u00e9", 100) + "\n", true},
      {"800 lines", repeat("int a;\n", 800), true},
      {"801 lines", repeat("int a;\n", 801), false},
      {"a plot of 801 lines", repeat("<path/>\n", 801), true, "docs/a.svg"},
      {"an example of 99 lines", repeat("int a;\n", 99), true, "examples/01_a.c"},
      {"an example of 100 lines", repeat("int a;\n", 100), false, "examples/01_a.c"},
      {"a C++ example of 100 lines", repeat("int a;\n", 100), false, "examples/02_a.cc"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(check({test.path, test.text}).empty(), test.allowed) << test.name;
  }
}

TEST(Rules, nothing_is_too_long) {
  Complaints complaints;
  for (const File& file : files()) {
    for (const std::string& complaint : check(file)) complaints.push_back(complaint);
  }
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

TEST(Rules, there_are_ten_examples) {
  const auto found =
      std::ranges::count_if(files(), [](const File& file) { return is_example(file.path); });
  EXPECT_GE(found, least_examples);
}

}  // namespace
}  // namespace rules
