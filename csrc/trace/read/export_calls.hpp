// The calls of a thread as events of begin and end.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "trace/read/export_text.hpp"
#include "trace/read/nesting.hpp"
#include "trace/read/snapshot.hpp"

namespace oddrank::trace {

// Writes for one record, thread by thread. What is said of a code object is escaped once.
class ExportCalls final : public CallVisitor {
 public:
  ExportCalls(ExportText& out, Names& names, bool lines)
      : out_(out), names_(names), lines_(lines) {}

  // The calls that follow are those of another thread.
  void set_thread(const Thread& thread) noexcept;

  void open(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override;
  void close(std::uint64_t tsc, std::uint32_t code, std::size_t depth, Why why) override;
  void line(std::uint64_t tsc, Place place) override;
  void gap(std::uint64_t tsc) override;

 private:
  // Of one code object: what follows the time of its calls and of its lines.
  struct Text {
    std::string call;
    std::string line;
  };
  const Text& text_of(std::uint32_t id);

  ExportText& out_;
  Names& names_;
  bool lines_;
  std::uint32_t tid_ = 0;
  bool ended_ = false;
  std::unordered_map<std::uint32_t, Text> texts_;
};

}  // namespace oddrank::trace
