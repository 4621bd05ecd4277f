// A header includes, itself or by headers of this repository, the header of each name of the
// standard library and of fmt that it uses. Standard headers include one another, in each library
// in another way, and the precompiled header hides what is missing: so a compiler would not notice
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "rules/tree.h"

namespace rules {
namespace {

/// The standard headers, and the names after `std::` for which a header of the repository includes
/// them. The names of the first row are declared by several standard headers.
const std::map<std::string, std::string> names_of = {
    {"", "begin end erase erase_if ios istream milli ostream"},
    {"algorithm", "all_of any_of copy copy_if fill find find_if max min shuffle sort"},
    {"any", "any"},
    {"array", "array"},
    {"atomic",
     "atomic atomic_signal_fence atomic_thread_fence memory_order_acquire "
     "memory_order_relaxed memory_order_release memory_order_seq_cst"},
    {"barrier", "barrier"},
    {"bit", "bit_cast bit_ceil bit_floor bit_width countr_zero endian has_single_bit"},
    {"bitset", "bitset"},
    {"chrono", "chrono"},
    {"cmath", "fabs isfinite isinf isnan ldexp signbit sqrt"},
    {"compare", "strong_ordering"},
    {"complex", "complex"},
    {"concepts", "convertible_to derived_from integral invocable same_as"},
    {"condition_variable", "condition_variable"},
    {"cstddef", "byte nullptr_t ptrdiff_t size_t"},
    {"cstdint", "int16_t int32_t int64_t int8_t uint16_t uint32_t uint64_t uint8_t uintptr_t"},
    {"cstdio", "FILE fflush fprintf printf snprintf"},
    {"cstdlib", "abort aligned_alloc exit free getenv system"},
    {"cstring", "memcmp memcpy memset strlen strstr"},
    {"deque", "deque"},
    {"exception", "current_exception exception exception_ptr rethrow_exception"},
    {"filesystem", "filesystem"},
    {"fstream", "ifstream ofstream"},
    {"functional", "function hash"},
    {"future", "future promise"},
    {"initializer_list", "initializer_list"},
    {"iostream", "cerr cout"},
    {"iterator", "back_inserter istreambuf_iterator"},
    {"limits", "numeric_limits"},
    {"list", "list"},
    {"map", "map"},
    {"memory",
     "align dynamic_pointer_cast enable_shared_from_this make_shared make_unique shared_ptr "
     "unique_ptr weak_ptr"},
    {"mutex", "call_once lock_guard mutex once_flag recursive_mutex unique_lock"},
    {"new", "bad_alloc bad_array_new_length"},
    {"numeric", "accumulate iota"},
    {"optional", "nullopt optional"},
    {"queue", "queue"},
    {"random", "mt19937 mt19937_64 random_device"},
    {"ranges", "ranges"},
    {"regex", "regex"},
    {"set", "set"},
    {"span", "as_bytes as_writable_bytes span"},
    {"sstream", "istringstream ostringstream"},
    {"stdexcept", "runtime_error"},
    {"stdfloat", "bfloat16_t float16_t"},
    {"string", "getline stoull string to_string"},
    {"string_view", "string_view"},
    {"system_error", "error_code"},
    {"thread", "jthread this_thread thread"},
    {"tuple", "apply tuple tuple_size"},
    {"type_traits",
     "common_type_t conditional_t decay_t enable_if_t invoke_result_t is_arithmetic_v "
     "is_const_v is_enum_v is_floating_point_v is_integral_v is_invocable_r_v is_member_pointer_v "
     "is_null_pointer_v is_pointer_v is_same_v is_signed_v is_trivially_copyable_v is_void_v "
     "make_unsigned_t remove_all_extents_t remove_cv_t remove_cvref_t remove_reference_t "
     "true_type underlying_type_t"},
    {"unordered_map", "unordered_map"},
    {"unordered_set", "unordered_set"},
    {"utility",
     "declval exchange forward in_range index_sequence index_sequence_for move pair swap"},
    {"variant", "variant"},
    {"vector", "vector"},
};

/// The same for names of C without `std::`.
const std::map<std::string, std::string> c_names_of = {
    {"cerrno", "errno"},
    {"cstdint", "int16_t int32_t int64_t int8_t uint16_t uint32_t uint64_t uint8_t uintptr_t"},
    {"cstdlib", "getenv setenv unsetenv"},
    {"cstring",
     "memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strsignal"},
};

/// The header of each name.
std::map<std::string, std::string> turned_around(const std::map<std::string, std::string>& rows) {
  std::map<std::string, std::string> header;
  for (const auto& [standard, names] : rows) {
    std::istringstream words(names);
    for (std::string name; words >> name;) header[name] = standard;
  }
  return header;
}

/// The headers of the repository, and the headers from elsewhere that each of them includes.
class Headers {
 public:
  void add(const File& file) { files_[file.path] = &file; }
  std::size_t size() const { return files_.size(); }
  const std::map<std::string, const File*>& files() const { return files_; }

  /// The headers from elsewhere that a header includes, itself or by headers of the repository.
  const std::set<std::string>& from_elsewhere(const std::string& path) {
    const auto [known, is_new] = from_elsewhere_.try_emplace(path);
    std::set<std::string>& included = known->second;
    if (!is_new) return included;
    for (const std::string& line : lines_of(files_.at(path)->text)) {
      if (!line.starts_with("#include ")) continue;
      const std::string name = line.substr(10, line.find_first_of(">\"", 10) - 10);
      const std::string inner = in_repository(path, name);
      if (inner.empty()) {
        included.insert(name);
      } else {
        const std::set<std::string>& more = from_elsewhere(inner);
        included.insert(more.begin(), more.end());
      }
    }
    return included;
  }

 private:
  /// The path of the header that `includer` names; empty: a header from elsewhere.
  std::string in_repository(const std::string& includer, const std::string& name) const {
    const std::string beside = includer.substr(0, includer.rfind('/') + 1);
    for (const std::string& folder :
         {beside, std::string("include/"), std::string("src/"), std::string("tests/")}) {
      const std::string path = std::filesystem::path(folder + name).lexically_normal().string();
      if (files_.contains(path)) return path;
    }
    return "";
  }

  std::map<std::string, const File*> files_;                     // by path
  std::map<std::string, std::set<std::string>> from_elsewhere_;  // by path
};

Complaints check(Headers& headers, const File& file) {
  static const auto header_of = turned_around(names_of);
  static const auto header_of_c = turned_around(c_names_of);
  static const std::regex qualified_name("\\b(std|fmt)::(\\w+)");
  static const std::regex plain_name("(^|[^\\w:.>]|[^\\w]::)(\\w+)\\b");
  std::set<std::string> included = headers.from_elsewhere(file.path);
  const bool has_fmt =
      std::ranges::any_of(included, [](const auto& name) { return name.starts_with("fmt/"); });
  Complaints complaints;
  std::size_t number = 0;
  const auto need = [&](const std::string& name, const std::string& header) {
    if (header.empty() || included.contains(header.substr(1) + ".h")) return;  // cerrno: errno.h
    if (!included.insert(header).second) return;
    complaints.push_back(at(file.path, number, name + " needs #include <" + header + ">"));
  };
  for (const std::string& line : lines_of(code_of(file.text))) {
    ++number;
    const std::sregex_iterator end;
    for (std::sregex_iterator it(line.begin(), line.end(), qualified_name); it != end; ++it) {
      const auto found = header_of.find((*it)[2]);
      if ((*it)[1] == "fmt") {
        if (!has_fmt) need(it->str(), "fmt/format.h");
      } else if (found == header_of.end()) {
        complaints.push_back(at(file.path, number, it->str() + " has no header in this test"));
      } else {
        need(it->str(), found->second);
      }
    }
    for (std::sregex_iterator it(line.begin(), line.end(), plain_name); it != end; ++it) {
      const auto found = header_of_c.find((*it)[2]);
      if (found != header_of_c.end()) need(found->first, found->second);
    }
  }
  return complaints;
}

TEST(Rules, a_missing_standard_header_is_found) {
  const File below = {"src/base/b.h", "#include <vector>\n"};
  const struct {
    const char* text;
    bool allowed;
  } cases[] = {
      {"#include <vector>\nstd::vector<int> a;", true},
      {"std::vector<int> a;", false},
      {"#include \"base/b.h\"\nstd::vector<int> a;", true},
      {"#include \"b.h\"\nstd::vector<int> a;", true},
      {"#include <string>\nstd::vector<std::string> a;", false},
      {"// std::vector\n#include <vector>\nstd::size_t a;", false},
      {"// std::vector", true},
      {"std::erase(a, 1);", true},
      {"std::some_name a;", false},
      {"#include <cerrno>\nint a = errno;", true},
      {"int a = errno;", false},
      {"return a(::memcpy(b, c, 1));", false},
      {"return a.strlen() + b->strlen() + C::strlen() + my_strlen();", true},
      {"#include <fmt/core.h>\nfmt::print();", true},
      {"fmt::print();", false},
  };
  for (const auto& test : cases) {
    const File file = {"src/base/a.h", test.text};
    Headers headers;
    headers.add(below);
    headers.add(file);
    EXPECT_EQ(check(headers, file).empty(), test.allowed) << test.text;
  }
}

TEST(Rules, headers_include_the_standard_headers_of_the_names_that_they_use) {
  Headers headers;
  for (const File& file : files()) {
    if (file.path.ends_with(".h") || file.path.ends_with(".hpp")) headers.add(file);
  }
  Complaints complaints;
  for (const auto& [path, file] : headers.files()) {
    for (const std::string& complaint : check(headers, *file)) complaints.push_back(complaint);
  }
  EXPECT_LT(300u, headers.size());
  EXPECT_TRUE(complaints.empty()) << join(complaints);
}

}  // namespace
}  // namespace rules
