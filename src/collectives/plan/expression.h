// The formulas in a file of a plan: "(r - i) mod p", "j + r + 1", and conditions on ranks, "r !=
// root".
//
//   sum        := product { ("+" | "-") product }
//   product    := unary { ("*" | "/" | "mod" | "xor") unary }
//   unary      := "-" unary | number | name | "(" sum ")"
//   condition  := comparison { "and" comparison }
//   comparison := sum ("==" | "!=" | "<" | "<=" | ">" | ">=") sum | sum "in" "{" sum { "," sum }
//   "}"
//
// A name is r (the rank), p (the number of ranks), root, n (the number of nodes), k (the ranks of
// this rank's node), i (the instance of the lane) or j (the ranges that one range stands for). "/"
// rounds towards minus infinity; mod is never negative. A formula with i or j must be an index: it
// has the form (a + b i + c j) mod m, with numbers a, b, c and m, after r, p and root are replaced
// by their values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "collectives/plan/plan.h"

namespace hocket::internal {

/// The values of the names on one rank. Without a root, root is -1; without nodes, n is 0.
struct Names {
  std::int64_t r = 0, p = 1, root = -1, n = 0, k = 0;
};

class Expression {
 public:
  Expression() : Expression(0) {}
  explicit Expression(std::int32_t number);
  /// Errors are phrases: "'r +' ends where a number or a name must follow".
  static Status parse(std::string_view text, Expression* out);

  Status index(const Names& names, Index* out) const;
  /// Sets *out to the value, which must be between least and most. The formula has neither i nor j.
  Status number(const Names& names, std::int64_t least, std::int64_t most, std::int64_t* out) const;
  const std::string& text() const { return text_; }

 private:
  friend class ExpressionParser;
  friend class Condition;
  enum class Code : char {
    number,
    r,
    p,
    root,
    n,
    k,
    i,
    j,
    negate,
    add,
    subtract,
    multiply,
    divide,
    mod,
    exclusive_or
  };
  struct Node {
    Code code;
    std::int64_t number = 0;
  };
  struct Value;
  Status evaluate(const Names& names, Value* out) const;
  static const char* apply(Code code, const Value& left, const Value& right, Value* out);

  std::string text_;
  std::vector<Node> nodes_;  // operands before their operator
};

class Condition {
 public:
  static Status parse(std::string_view text, Condition* out);
  Status holds(const Names& names, bool* out) const;

 private:
  friend class ExpressionParser;
  enum class Relation : char { equal, unequal, less, at_most, greater, at_least, in };
  struct Comparison {
    Expression left;
    Relation relation = Relation::equal;
    std::vector<Expression> right;  // in: a list; else one
  };
  std::vector<Comparison> comparisons_;  // all must hold
};

/// The text of a file in an error: short, without control characters, in quotes.
std::string in_quotes(std::string_view text);

}  // namespace hocket::internal
