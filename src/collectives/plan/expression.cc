#include "collectives/plan/expression.h"

#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

namespace hocket::internal {
namespace {

constexpr std::size_t most_characters = 400;  // so that parentheses are not too deep for the stack
constexpr std::int64_t most_number = std::numeric_limits<std::int32_t>::max();

bool in_range(std::int64_t value) { return value >= -most_number && value <= most_number; }

std::int64_t remainder(std::int64_t value, std::int64_t modulo) {
  const std::int64_t rest = value % modulo;
  return rest < 0 ? rest + modulo : rest;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string out = "'";
  for (const char c : text.substr(0, most)) {
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  return out + (text.size() > most ? "...'" : "'");
}

/// (base + i * by_i + j * by_j) mod modulo; modulo 0: no reduction.
struct Expression::Value {
  std::int64_t base = 0, by_i = 0, by_j = 0, modulo = 0;

  bool is_number() const { return by_i == 0 && by_j == 0 && modulo == 0; }
};

Expression::Expression(std::int32_t number)
    : text_(std::to_string(number)), nodes_{{Code::number, number}} {}

/// Returns what is wrong; null: nothing.
const char* Expression::apply(Code code, const Value& left, const Value& right, Value* out) {
  *out = {};
  if (left.modulo != 0 || right.modulo != 0)
    return "is no index: mod must be outermost where i or j stands";
  switch (code) {
    case Code::add:
      *out = {left.base + right.base, left.by_i + right.by_i, left.by_j + right.by_j};
      return nullptr;
    case Code::subtract:
      *out = {left.base - right.base, left.by_i - right.by_i, left.by_j - right.by_j};
      return nullptr;
    case Code::multiply: {
      if (!left.is_number() && !right.is_number())
        return "is no index: it multiplies i or j with i or j";
      const Value& factor = left.is_number() ? left : right;
      const Value& other = left.is_number() ? right : left;
      *out = {other.base * factor.base, other.by_i * factor.base, other.by_j * factor.base};
      return nullptr;
    }
    case Code::divide:
      if (!left.is_number() || !right.is_number()) return "is no index: it divides i or j";
      if (right.base < 1) return "divides by a number below 1";
      out->base = (left.base - remainder(left.base, right.base)) / right.base;
      return nullptr;
    case Code::exclusive_or:
      if (!left.is_number() || !right.is_number()) return "is no index: it has xor of i or j";
      if (left.base < 0 || right.base < 0) return "has xor of a negative number";
      out->base = left.base ^ right.base;
      return nullptr;
    default:  // mod
      if (!right.is_number()) return "is no index: i or j stands behind mod";
      if (right.base < 1) return "has mod of a number below 1";
      *out = left;
      if (left.is_number()) {
        out->base = remainder(left.base, right.base);
      } else {
        out->modulo = right.base;
      }
      return nullptr;
  }
}

Status Expression::evaluate(const Names& names, Value* out) const {
  std::vector<Value> stack;
  for (const Node& node : nodes_) {
    Value value;
    const char* wrong = nullptr;
    switch (node.code) {
      case Code::number:
        value.base = node.number;
        break;
      case Code::r:
        value.base = names.r;
        break;
      case Code::p:
        value.base = names.p;
        break;
      case Code::root:
        value.base = names.root;
        if (names.root < 0) wrong = "names the root, but there is none";
        break;
      case Code::n:
      case Code::k:
        value.base = node.code == Code::n ? names.n : names.k;
        if (names.n == 0) wrong = "names n or k, which are only for links 'both'";
        break;
      case Code::i:
        value.by_i = 1;
        break;
      case Code::j:
        value.by_j = 1;
        break;
      case Code::negate:
        wrong = apply(Code::subtract, {}, stack.back(), &value);
        stack.pop_back();
        break;
      default: {
        const Value right = stack.back();
        stack.pop_back();
        wrong = apply(node.code, stack.back(), right, &value);
        stack.pop_back();
        break;
      }
    }
    if (wrong == nullptr &&
        !(in_range(value.base) && in_range(value.by_i) && in_range(value.by_j))) {
      wrong = "has a number that is too large";
    }
    if (wrong != nullptr) return invalid_argument(in_quotes(text_) + " " + wrong);
    stack.push_back(value);
  }
  *out = stack.back();
  return {};
}

Status Expression::index(const Names& names, Index* out) const {
  Value value;
  HOCKET_RETURN_IF_ERROR(evaluate(names, &value));
  *out = {.base = static_cast<std::int32_t>(value.base),
          .by_instance = static_cast<std::int32_t>(value.by_i),
          .by_source = static_cast<std::int32_t>(value.by_j),
          .modulo = static_cast<std::uint32_t>(value.modulo)};
  return {};
}

Status Expression::number(const Names& names, std::int64_t least, std::int64_t most,
                          std::int64_t* out) const {
  Value value;
  HOCKET_RETURN_IF_ERROR(evaluate(names, &value));
  if (!value.is_number()) {
    return invalid_argument(in_quotes(text_) + " may not depend on i or j here");
  }
  *out = value.base;
  if (value.base >= least && value.base <= most) return {};
  return invalid_argument(in_quotes(text_) + " is " + std::to_string(value.base) + " here, not " +
                          std::to_string(least) + ".." + std::to_string(most));
}

/// Recursive descent over the text. The first error stays.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Status parse(Expression* out) {
    if (check_length()) {
      *out = whole_sum();
      expect_end();
    }
    return status();
  }

  Status parse(Condition* out) {
    if (check_length()) {
      do out->comparisons_.push_back(comparison());
      while (error_.empty() && take_word("and"));
      expect_end();
    }
    return status();
  }

 private:
  using Code = Expression::Code;
  using Relation = Condition::Relation;

  Status status() const {
    return error_.empty() ? Status() : invalid_argument(in_quotes(text_) + " " + error_);
  }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
    at_ = text_.size();
  }
  bool check_length() {
    if (text_.size() > most_characters) fail("is longer than 400 characters");
    return error_.empty();
  }
  void expect_end() {
    skip_spaces();
    if (error_.empty() && at_ < text_.size())
      fail("is not understood from " + in_quotes(rest()) + " on");
  }

  std::string_view rest() const { return text_.substr(at_); }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool take(std::string_view symbol) {
    skip_spaces();
    if (!rest().starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  /// The letters that follow.
  std::string_view word() {
    skip_spaces();
    std::size_t end = at_;
    while (end < text_.size() && std::isalpha(static_cast<unsigned char>(text_[end])) != 0) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view wanted) {
    if (word() != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  Expression whole_sum() {
    nodes_.clear();
    skip_spaces();
    const std::size_t begin = at_;
    sum();
    Expression made;
    made.nodes_ = std::move(nodes_);
    made.text_ = text_.substr(begin, at_ - begin);
    while (!made.text_.empty() && made.text_.back() == ' ') made.text_.pop_back();
    return made;
  }
  void sum() {
    product();
    while (error_.empty()) {
      if (take("+")) {
        product();
        nodes_.push_back({Code::add});
      } else if (take("-")) {
        product();
        nodes_.push_back({Code::subtract});
      } else {
        return;
      }
    }
  }
  void product() {
    unary();
    while (error_.empty()) {
      Code code{};
      if (take("*")) {
        code = Code::multiply;
      } else if (take("/")) {
        code = Code::divide;
      } else if (take_word("mod")) {
        code = Code::mod;
      } else if (take_word("xor")) {
        code = Code::exclusive_or;
      } else {
        return;
      }
      unary();
      nodes_.push_back({code});
    }
  }
  void unary() {
    if (take("-")) {
      unary();
      nodes_.push_back({Code::negate});
    } else if (take("(")) {
      sum();
      if (error_.empty() && !take(")")) fail("lacks a ')'");
    } else {
      primary();
    }
  }
  void primary() {
    skip_spaces();
    if (at_ == text_.size()) return fail("ends where a number or a name must follow");
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      std::int32_t number = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
      if (error != std::errc()) return fail("has a number that is too large");
      at_ = static_cast<std::size_t>(end - text_.data());
      nodes_.push_back({Code::number, number});
      return;
    }
    static constexpr std::pair<std::string_view, Code> names[] = {
        {"r", Code::r}, {"p", Code::p}, {"root", Code::root}, {"n", Code::n},
        {"k", Code::k}, {"i", Code::i}, {"j", Code::j}};
    for (const auto& [name, code] : names) {
      if (!take_word(name)) continue;
      nodes_.push_back({code});
      return;
    }
    fail("is not understood from " + in_quotes(rest()) +
         " on: the names are r, p, root, n, k, i and j");
  }

  Condition::Comparison comparison() {
    Condition::Comparison made;
    made.left = whole_sum();
    if (take_word("in")) {
      made.relation = Relation::in;
      if (!take("{")) fail("lacks a '{' behind in");
      do made.right.push_back(whole_sum());
      while (error_.empty() && take(","));
      if (error_.empty() && !take("}")) fail("lacks a '}'");
      return made;
    }
    const std::optional<Relation> found = relation();
    if (!found) {
      fail("has no comparison (==, !=, <, <=, >, >= or in {...})");
      return made;
    }
    made.relation = *found;
    made.right.push_back(whole_sum());
    return made;
  }
  std::optional<Relation> relation() {
    static constexpr std::pair<std::string_view, Relation> relations[] = {
        {"==", Relation::equal},    {"!=", Relation::unequal}, {"<=", Relation::at_most},
        {">=", Relation::at_least}, {"<", Relation::less},     {">", Relation::greater}};
    for (const auto& [symbol, relation] : relations) {
      if (take(symbol)) return relation;
    }
    return std::nullopt;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Expression::Node> nodes_;
  std::string error_;
};

Status Expression::parse(std::string_view text, Expression* out) {
  return ExpressionParser(text).parse(out);
}

Status Condition::parse(std::string_view text, Condition* out) {
  out->comparisons_.clear();
  return ExpressionParser(text).parse(out);
}

Status Condition::holds(const Names& names, bool* out) const {
  *out = true;
  for (const Comparison& comparison : comparisons_) {
    std::int64_t left = 0;
    HOCKET_RETURN_IF_ERROR(comparison.left.number(names, -most_number, most_number, &left));
    bool holds = false;
    for (const Expression& expression : comparison.right) {
      std::int64_t right = 0;
      HOCKET_RETURN_IF_ERROR(expression.number(names, -most_number, most_number, &right));
      switch (comparison.relation) {
        case Relation::equal:
        case Relation::in:
          holds |= left == right;
          break;
        case Relation::unequal:
          holds = left != right;
          break;
        case Relation::less:
          holds = left < right;
          break;
        case Relation::at_most:
          holds = left <= right;
          break;
        case Relation::greater:
          holds = left > right;
          break;
        case Relation::at_least:
          holds = left >= right;
          break;
      }
    }
    *out &= holds;
  }
  return {};
}

}  // namespace hocket::internal
