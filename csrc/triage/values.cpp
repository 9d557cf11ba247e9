// The arena, and the stack machine that builds values in it.
#include "triage/values.hpp"

#include <cstring>

namespace oddrank {
namespace {

// Other words for some of them.
constexpr std::array<std::pair<std::string_view, Word>, 5> kAlso{
    {{"global_rank", "rank"_word},
     {"host_name", "hostname"_word},
     {"host", "hostname"_word},
     {"last_enqueued_work", "last_enqueued_collective"_word},
     {"last_completed_work", "last_completed_collective"_word}}};
constexpr std::size_t kLongestWord = 25;

// The words by length: the size of most strings rules out all words.
struct ByLength {
  std::array<std::array<std::pair<std::string_view, Word>, 8>, kLongestWord + 1> rows{};
  std::array<std::uint8_t, kLongestWord + 1> counts{};
  constexpr void add(std::string_view text, Word word) {
    rows[text.size()][counts[text.size()]++] = {text, word};
  }
};

constexpr ByLength kByLength = [] {
  ByLength made;
  for (std::size_t i = 0; i < kWords.size(); ++i) made.add(kWords[i], static_cast<Word>(i + 1));
  for (const auto& [text, word] : kAlso) made.add(text, word);
  return made;
}();

}  // namespace

Word word_of(std::string_view text) noexcept {
  if (text.size() > kLongestWord) return Word::other;
  const auto& row = kByLength.rows[text.size()];
  for (std::size_t i = 0; i < kByLength.counts[text.size()]; ++i) {
    const auto& [word, id] = row[i];
    if (std::memcmp(word.data(), text.data(), text.size()) == 0) return id;
  }
  return Word::other;
}

void Visits::used_up() {
  left_ = 0;
  throw Error("it is damaged: it repeats its own parts without end");
}

void* Arena::take_from_next(std::size_t bytes) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  // A block that is too small is left out: it is used again by the next dump.
  while (++place_.block < blocks_.size() && blocks_[place_.block].size < bytes) {
  }
  place_.block = std::min(place_.block, blocks_.size());
  if (place_.block == blocks_.size()) {
    const std::size_t size = std::max(bytes, kBlock);
    if (size > most_ - held_) {
      place_.used = end_ = 0;
      throw Error("it holds more data than the limit of " + std::to_string(most_ >> 20) + " MiB");
    }
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
    held_ += size;
  }
  use(place_.block);
  place_.used = bytes;
  return bytes_;
}

void Builder::full(const char* what) {
  throw Error(std::string("it needs more ") + what + " than the limit");
}

void Builder::short_of(const char* what) { throw Error(std::string("it lacks ") + what); }

void Builder::begin(DictSink* sink) {
  sink_ = sink;
  arena_.back_to({});
  texts_.back_to({});
  // One huge dump must not hold its memory while the others are read.
  constexpr std::size_t kUsual = std::size_t{64} << 20;
  if (arena_.held() > kUsual) arena_ = Arena(kMostMemory);
  if (texts_.held() > kUsual) texts_ = Arena(kMostTexts);
  stack_.clear();
  marks_.clear();
  clear_for_reuse(memo_);
  remembered_ = 0;
}

void Builder::list_of_top(std::size_t count) {
  if (stack_.size() - floor() < count) short_of("values for a tuple");
  mark();
  marks_.back() -= count;
  list_of_marked();
}

void Builder::list_of_marked() {
  const std::size_t from = pop_mark();
  Value made = new_items(Kind::list);
  add(made, stack_.from(from));
  stack_.cut(from);
  push(made);
}

void Builder::append_one() {
  if (stack_.size() < floor() + 2) short_of("a value to append");
  mark();
  marks_.back() -= 1;
  append_marked();
}

void Builder::set(Value& dict, std::size_t from) {
  const std::span<const Value> pairs = stack_.from(from);
  if (pairs.size() % 2 != 0) short_of("a value for a key");
  Items& items = *dict.items;
  if (sink_ != nullptr && items.count == 0) {
    const DictSink::Taken taken = sink_->take(pairs);
    if (taken != DictSink::Taken::no) {
      // Nothing can refer to its parts unless the memo got or gave a container meanwhile. Kept
      // parts must outlive the dicts around it as well.
      if (taken == DictSink::Taken::kept) ++remembered_;
      if (items.remembered == remembered_) arena_.back_to(items.place);
      dict = Value();
      stack_.cut(from);
      return;
    }
  }
  add(dict, pairs);
  stack_.cut(from);
}

void Builder::set_marked() {
  const std::size_t from = pop_mark();
  if (from <= floor() || !stack_[from - 1].is(Kind::dict)) short_of("a dict to fill");
  set(stack_[from - 1], from);
}

void Builder::set_one() {
  if (stack_.size() < floor() + 3) short_of("a key and a value");
  const std::size_t from = stack_.size() - 2;
  Value& dict = stack_[from - 1];
  if (!dict.is(Kind::dict)) short_of("a dict to fill");
  add(dict, stack_.from(from));
  stack_.cut(from);
}

void Builder::memo_put(std::size_t index) {
  if (stack_.size() <= floor()) short_of("a value to remember");
  // Writers number what they remember, with few gaps.
  if (index >= kMostMemo || index > 4 * memo_.size() + 4096) full("remembered values");
  if (index >= memo_.size()) memo_.resize(index + 1);
  const Value& value = stack_.back();
  remembered_ += value.is(Kind::list) || value.is(Kind::dict);
  memo_[index] = value;
}

Value Builder::finish() {
  if (stack_.size() != 1 || !marks_.empty()) short_of("one value as its result");
  return stack_.back();
}

Value Builder::salvage() {
  while (!marks_.empty()) {
    const std::size_t from = pop_mark();
    const bool inside = from > floor();
    Value* const container = inside ? &stack_[from - 1] : nullptr;
    if (container != nullptr && container->is(Kind::list)) {
      add(*container, stack_.from(from));
    } else if (container != nullptr && container->is(Kind::dict)) {
      add(*container, stack_.from(from).first((stack_.size() - from) & ~std::size_t{1}));
    }
    stack_.cut(from);
    // Each pair of the root and of its own dicts tells something. An entry or a group that is cut
    // off must not be guessed: it is left out whole.
    const bool of_root = marks_.empty() || (marks_.back() == 1 && stack_[0].is(Kind::dict));
    if (container != nullptr && container->is(Kind::dict) && !of_root) {
      stack_.cut(stack_.size() - 1);
    }
  }
  return stack_.empty() ? Value() : stack_[0];
}

}  // namespace oddrank
