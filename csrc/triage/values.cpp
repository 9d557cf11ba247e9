// The arena, and the stack machine that builds values in it.
#include "triage/values.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "os/error.hpp"

namespace oddrank {
namespace {

constexpr std::array<std::pair<std::string_view, Word>, 45> kWords{{
    {"version", Word::version},
    {"pg_config", Word::pg_config},
    {"pg_status", Word::pg_status},
    {"entries", Word::entries},
    {"rank", Word::rank},
    {"global_rank", Word::rank},
    {"hostname", Word::hostname},
    {"host_name", Word::hostname},
    {"host", Word::hostname},
    {"pid", Word::pid},
    {"world_size", Word::world_size},
    {"comm_lib_version", Word::comm_lib_version},
    {"nccl_version", Word::comm_lib_version},
    {"record_id", Word::record_id},
    {"pg_id", Word::pg_id},
    {"process_group", Word::process_group},
    {"collective_seq_id", Word::collective_seq_id},
    {"p2p_seq_id", Word::p2p_seq_id},
    {"seq_id", Word::seq_id},
    {"op_id", Word::op_id},
    {"is_p2p", Word::is_p2p},
    {"profiling_name", Word::profiling_name},
    {"input_sizes", Word::input_sizes},
    {"input_dtypes", Word::input_dtypes},
    {"output_sizes", Word::output_sizes},
    {"output_dtypes", Word::output_dtypes},
    {"time_created_ns", Word::time_created_ns},
    {"timeout_ms", Word::timeout_ms},
    {"frames", Word::frames},
    {"state", Word::state},
    {"line", Word::line},
    {"name", Word::name},
    {"desc", Word::desc},
    {"ranks", Word::ranks},
    {"filename", Word::filename},
    {"retired", Word::retired},
    {"time_discovered_started_ns", Word::time_started},
    {"time_discovered_completed_ns", Word::time_completed},
    {"thread_name", Word::thread_name},
    {"last_enqueued_collective", Word::last_enqueued},
    {"last_started_collective", Word::last_started},
    {"last_completed_collective", Word::last_completed},
    {"last_enqueued_work", Word::last_enqueued},
    {"last_started_work", Word::last_started},
    {"last_completed_work", Word::last_completed},
}};
constexpr std::size_t kLongestWord = 28;

// The words by length, so that most strings are told from all of them by their size.
struct ByLength {
  std::array<std::array<std::uint8_t, 8>, kLongestWord + 1> rows{};
  std::array<std::uint8_t, kLongestWord + 1> counts{};
};

constexpr ByLength kByLength = [] {
  ByLength made;
  for (std::size_t i = 0; i < kWords.size(); ++i) {
    const std::size_t length = kWords[i].first.size();
    made.rows[length][made.counts[length]++] = static_cast<std::uint8_t>(i);
  }
  return made;
}();

}  // namespace

Word word_of(std::string_view text) noexcept {
  if (text.size() > kLongestWord) return Word::other;
  const auto& row = kByLength.rows[text.size()];
  for (std::size_t i = 0; i < kByLength.counts[text.size()]; ++i) {
    const auto& [word, id] = kWords[row[i]];
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
      throw Error("it holds more data than the limit of 512 MiB");
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
  // One huge dump must not hold its memory while the others are read.
  constexpr std::size_t kUsual = std::size_t{64} << 20;
  if (arena_.held() > kUsual) arena_ = Arena(kMostMemory);
  stack_.clear();
  marks_.clear();
  memo_.clear();
  remembered_ = 0;
}

std::size_t Builder::pop_mark() {
  if (marks_.empty()) short_of("a mark");
  const std::size_t at = marks_.back();
  marks_.pop_back();
  return at;
}

void Builder::push_items(Kind kind) {
  const Arena::Place place = arena_.place();
  Value made;
  made.kind = kind;
  made.items = new (arena_.take(sizeof(Items))) Items;
  made.items->place = place;
  made.items->remembered = remembered_;
  push(made);
}

void Builder::add(Value& container, std::span<const Value> values) {
  if (values.empty()) return;
  auto* const chunk = new (arena_.take(sizeof(Chunk) + values.size_bytes())) Chunk;
  chunk->next = nullptr;
  chunk->count = values.size();
  std::memcpy(static_cast<void*>(chunk + 1), values.data(), values.size_bytes());
  Items& items = *container.items;
  (items.last == nullptr ? items.first : items.last->next) = chunk;
  items.last = chunk;
  items.count += values.size();
}

void Builder::list_of_top(std::size_t count) {
  if (stack_.size() - floor() < count) short_of("values for a tuple");
  mark();
  marks_.back() -= count;
  list_of_marked();
}

void Builder::items_of_marked(Kind kind) {
  const std::size_t from = pop_mark();
  push_items(kind);
  const Value made = stack_.back();
  stack_.pop_back();
  if (kind == Kind::dict) {
    stack_.insert(stack_.begin() + static_cast<std::ptrdiff_t>(from), made);
    set(stack_[from], from + 1);
  } else {
    Value filled = made;
    add(filled, std::span(stack_).subspan(from));
    stack_.resize(from);
    push(filled);
  }
}

void Builder::append_marked() {
  const std::size_t from = pop_mark();
  if (from <= floor() || !stack_[from - 1].is(Kind::list)) short_of("a list to append to");
  add(stack_[from - 1], std::span(stack_).subspan(from));
  stack_.resize(from);
}

void Builder::append_one() {
  if (stack_.size() < floor() + 2) short_of("a value to append");
  mark();
  marks_.back() -= 1;
  append_marked();
}

void Builder::set(Value& dict, std::size_t from) {
  const std::span<const Value> pairs = std::span(stack_).subspan(from);
  if (pairs.size() % 2 != 0) short_of("a value for a key");
  Items& items = *dict.items;
  if (sink_ != nullptr && items.count == 0) {
    const DictSink::Taken taken = sink_->take(pairs);
    if (taken != DictSink::Taken::no) {
      // Nothing can refer to its parts unless the memo got or gave a container meanwhile. What is
      // kept must outlive the dicts around it as well.
      if (taken == DictSink::Taken::kept) ++remembered_;
      if (items.remembered == remembered_) arena_.back_to(items.place);
      dict = Value();
      stack_.resize(from);
      return;
    }
  }
  add(dict, pairs);
  stack_.resize(from);
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
  add(dict, std::span(stack_).subspan(from));
  stack_.resize(from);
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
      add(*container, std::span(stack_).subspan(from));
    } else if (container != nullptr && container->is(Kind::dict)) {
      add(*container, std::span(stack_).subspan(from, (stack_.size() - from) & ~std::size_t{1}));
    }
    stack_.resize(from);
  }
  if (stack_.empty()) return {};
  // Old protocols set pairs one by one, without a mark.
  Value root = stack_.front();
  if (root.is(Kind::dict) && stack_.size() >= 3) add(root, std::span(stack_).subspan(1, 2));
  return root;
}

}  // namespace oddrank
