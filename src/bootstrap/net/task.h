// A function object that runs once on an event loop. It can be moved but not copied, so that it may
// own a descriptor.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace hocket::internal {

class Task {
 public:
  Task() = default;
  template <typename Function>
  requires(!std::same_as<std::decay_t<Function>, Task>)
      Task(Function function)  // NOLINT(google-explicit-constructor): a lambda is a task
      : body_(std::make_unique<Body<Function>>(std::move(function))) {}
  void operator()() const { body_->run(); }

 private:
  struct AnyBody {
    virtual ~AnyBody() = default;
    virtual void run() = 0;
  };
  template <typename Function>
  struct Body final : AnyBody {
    explicit Body(Function f) : function(std::move(f)) {}
    void run() override { function(); }
    Function function;
  };
  std::unique_ptr<AnyBody> body_;
};

}  // namespace hocket::internal
