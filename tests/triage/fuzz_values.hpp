// Shared by the fuzzers' targets for pickles and JSON: looks at every value that a reader has
// built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "os/error.hpp"
#include "triage/values.hpp"

namespace oddrank::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

// Touches all parts of a value, as far as the visits reach: lists may hold themselves.
inline void look_at(const Value& root, Visits& visits) {
  std::vector<Value> ahead{root};
  while (!ahead.empty()) {
    const Value value = ahead.back();
    ahead.pop_back();
    require(value.kind <= Kind::dict);
    if (value.is(Kind::text)) require(word_of(value.string()) == value.word);
    for_each(value, visits, [&](const Value& each) {
      ahead.push_back(each);
      return true;
    });
    for_each_pair(value, visits, [&](const Value& key, const Value& /*value*/) {
      require(key.kind <= Kind::dict);
    });
  }
}

// Takes each dict or leaves it, by its first key, and keeps the parts of some.
class Choosy final : public DictSink {
 public:
  Taken take(std::span<const Value> pairs) override {
    if (pairs.empty()) return Taken::no;
    const std::size_t choice = pairs.front().is(Kind::text) ? pairs.front().string().size() : 1;
    if (choice % 3 == 0) return Taken::no;
    if (choice % 3 == 1) return Taken::yes;
    if (kept.size() < 4096) kept.insert(kept.end(), pairs.begin(), pairs.end());
    return Taken::kept;
  }
  std::vector<Value> kept;
};

// Reads the input with and without a sink. What is kept must outlive all that comes after it.
template <typename Read>
void check(std::string_view input, Read read) {
  static Builder builder;  // memory is used again, as by the reader of dumps
  Choosy choosy;
  for (DictSink* const sink : {static_cast<DictSink*>(nullptr), static_cast<DictSink*>(&choosy)}) {
    builder.begin(sink);
    Value root;
    try {
      root = read(input, builder);
    } catch (const Error&) {
      root = builder.salvage();
    }
    try {
      Visits visits(20'000);
      for (const Value& kept : choosy.kept) look_at(kept, visits);
      look_at(root, visits);
    } catch (const Error&) {
    }
  }
}

}  // namespace oddrank::fuzz
