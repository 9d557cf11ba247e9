// Plain data as a flight-recorder dump holds it, built by the pickle and the JSON reader alike.
// Strings point into the input. Everything else lives in an arena that the next dump uses again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/encoding.hpp"
#include "os/error.hpp"

namespace oddrank {

enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, dict };

// The words that dumps use as keys. A word is looked up once, when its string is read.
inline constexpr auto kWords = split<33>(
    "version pg_config pg_status entries rank hostname pid world_size record_id pg_id "
    "process_group collective_seq_id p2p_seq_id seq_id op_id is_p2p profiling_name input_sizes "
    "input_dtypes output_sizes output_dtypes time_created_ns timeout_ms frames state line name "
    "desc ranks filename retired last_enqueued_collective last_completed_collective");
enum class Word : std::uint8_t { other };  // else its place in kWords, from 1

consteval Word operator""_word(const char* text, std::size_t size) {
  const auto* found = std::ranges::find(kWords, std::string_view(text, size));
  if (found == kWords.end()) throw "dumps have no such word";
  return static_cast<Word>(found - kWords.begin() + 1);
}

Word word_of(std::string_view text) noexcept;

struct Items;

// A value of a dump. A dict is a list of key, value, key, value. A tuple is a list.
struct Value {
  Kind kind = Kind::none;
  Word word = Word::other;
  std::uint32_t size = 0;  // bytes of a text
  union {
    std::int64_t integer = 0;
    double real;
    const char* text;
    Items* items;
  };

  bool is(Kind other) const noexcept { return kind == other; }
  std::string_view string() const noexcept {
    return kind == Kind::text ? std::string_view(text, size) : std::string_view();
  }
};

inline Value make_boolean(bool value) noexcept {
  return {Kind::boolean, Word::other, 0, {.integer = value}};
}
inline Value make_integer(std::int64_t value) noexcept {
  return {Kind::integer, Word::other, 0, {.integer = value}};
}
inline Value make_real(double value) noexcept {
  return {Kind::real, Word::other, 0, {.real = value}};
}
// `text` must have less than 4 GiB and live as long as the value.
inline Value make_text(std::string_view text) noexcept {
  return {
      Kind::text, word_of(text), static_cast<std::uint32_t>(text.size()), {.text = text.data()}};
}

// Empties a vector, and gives its memory back where one dump needed unusually much.
template <typename Element>
void clear_for_reuse(std::vector<Element>& all) {
  constexpr std::size_t kUsual = std::size_t{8} << 20;
  if (all.capacity() * sizeof(Element) > kUsual) all = {};
  all.clear();
}

// A vector whose push() is always inlined into its callers: each opcode calls it.
template <typename Element>
class Stack {
 public:
  // push() throws Error if there are `most` elements. what: their name, for its text.
  Stack(std::size_t most, const char* what) : most_(most), what_(what) {}

  [[gnu::always_inline]] void push(const Element& element) {
    if (top_ == end_) grow();
    *top_++ = element;
  }
  bool empty() const noexcept { return top_ == begin_.get(); }
  std::size_t size() const noexcept { return static_cast<std::size_t>(top_ - begin_.get()); }
  Element& operator[](std::size_t index) noexcept { return begin_[index]; }
  Element& back() noexcept { return top_[-1]; }
  const Element& back() const noexcept { return top_[-1]; }
  void cut(std::size_t size) noexcept { top_ = begin_.get() + size; }
  std::span<const Element> from(std::size_t index) const noexcept {
    return {begin_.get() + index, top_};
  }
  // Empties it, as clear_for_reuse() does.
  void clear() {
    constexpr std::size_t kUsual = std::size_t{8} << 20;
    if (static_cast<std::size_t>(end_ - begin_.get()) * sizeof(Element) > kUsual) {
      begin_.reset();
      end_ = nullptr;
    }
    top_ = begin_.get();
  }

 private:
  [[gnu::noinline]] void grow() {
    const std::size_t held = size();
    if (held >= most_) throw Error(std::string("it needs more ") + what_ + " than the limit");
    const std::size_t more = std::min(most_, std::max<std::size_t>(2 * held, 1024));
    auto made = std::make_unique_for_overwrite<Element[]>(more);
    std::copy(begin_.get(), top_, made.get());
    begin_ = std::move(made);
    top_ = begin_.get() + held;
    end_ = begin_.get() + more;
  }

  std::size_t most_;
  const char* what_;
  std::unique_ptr<Element[]> begin_;
  Element* top_ = nullptr;
  Element* end_ = nullptr;
};

// Elements that were appended at one time. They follow it in the arena.
struct Chunk {
  Chunk* next;
  std::size_t count;
  const Value* values() const noexcept { return reinterpret_cast<const Value*>(this + 1); }
};

// Gives memory that is given back all at once, or back to an earlier place.
class Arena {
 public:
  struct Place {
    std::size_t block = 0;
    std::size_t used = 0;
  };

  explicit Arena(std::size_t most) : most_(most) {}
  // Returns memory aligned to 8. Throws Error past the limit.
  void* take(std::size_t bytes) {
    bytes = (bytes + 7) & ~std::size_t{7};
    if (bytes > end_ - place_.used) return take_from_next(bytes);
    void* const taken = bytes_ + place_.used;
    place_.used += bytes;
    return taken;
  }
  std::size_t held() const noexcept { return held_; }
  Place place() const noexcept { return place_; }
  void back_to(Place place) noexcept {
    if (place.block != place_.block) use(place.block);
    place_ = place;
  }

 private:
  void* take_from_next(std::size_t bytes);
  void use(std::size_t block) noexcept {
    bytes_ = block < blocks_.size() ? blocks_[block].bytes.get() : nullptr;
    end_ = block < blocks_.size() ? blocks_[block].size : 0;
  }

  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::size_t most_;
  std::size_t held_ = 0;
  std::vector<Block> blocks_;
  Place place_;
  std::byte* bytes_ = nullptr;  // of the block in use
  std::size_t end_ = 0;
};

struct Items {
  Chunk* first = nullptr;
  Chunk* last = nullptr;
  std::size_t count = 0;
  Arena::Place place{};        // before this container
  std::size_t remembered = 0;  // what the builder had counted then
};

// How many values may still be looked at. Two bytes of a pickle refer to a list of any length, so
// the time that a dump takes is not bounded by its bytes alone.
class Visits {
 public:
  explicit Visits(std::uint64_t left = 0) noexcept : left_(left) {}
  // More than any writer of a dump of so many bytes needs.
  static Visits of_input(std::size_t bytes) noexcept {
    return Visits((std::uint64_t{16} << 20) + 16 * std::uint64_t{bytes});
  }
  void spend(std::uint64_t count) {
    if (count > left_) used_up();
    left_ -= count;
  }

 private:
  [[noreturn]] void used_up();
  std::uint64_t left_;
};

// Calls `each` with the elements of a list; it returns whether to go on. A dict has its keys at
// even places.
template <typename Each>
void for_each(const Value& list, Visits& visits, Each each) {
  if (!list.is(Kind::list) && !list.is(Kind::dict)) return;
  for (const Chunk* chunk = list.items->first; chunk != nullptr; chunk = chunk->next) {
    for (std::size_t i = 0; i < chunk->count; ++i) {
      visits.spend(1);
      if (!each(chunk->values()[i])) return;
    }
  }
}

// Calls `each` with key and value of a dict's pairs; nothing if it is no dict.
template <typename Each>
void for_each_pair(const Value& dict, Visits& visits, Each each) {
  if (!dict.is(Kind::dict)) return;
  for (const Chunk* chunk = dict.items->first; chunk != nullptr; chunk = chunk->next) {
    visits.spend(chunk->count);
    for (std::size_t i = 0; i + 1 < chunk->count; i += 2) {
      each(chunk->values()[i], chunk->values()[i + 1]);
    }
  }
}

// The values of a dict by their words; keys that are no word are left out.
class Fields {
 public:
  void set(const Value& key, const Value& value) noexcept {
    values_[static_cast<std::size_t>(key.word)] = &value;
  }
  const Value& operator[](Word word) const noexcept {
    const Value* const found = values_[static_cast<std::size_t>(word)];
    return found != nullptr ? *found : kAbsent;
  }
  bool has(Word word) const noexcept { return values_[static_cast<std::size_t>(word)] != nullptr; }

 private:
  static constexpr Value kAbsent{};
  std::array<const Value*, kWords.size() + 1> values_{};
};

inline Fields fields_of(const Value& dict, Visits& visits) {
  Fields fields;
  for_each_pair(dict, visits,
                [&](const Value& key, const Value& value) { fields.set(key, value); });
  return fields;
}

// Takes the pairs of each dict as soon as they are known, so that a dump's entries are never held.
class DictSink {
 public:
  enum class Taken { no, yes, kept };  // kept: taken, but its parts must live on

  DictSink() = default;
  DictSink(const DictSink&) = delete;
  DictSink& operator=(const DictSink&) = delete;
  virtual ~DictSink() = default;
  virtual Taken take(std::span<const Value> pairs) = 0;
};

// The stack machine of a pickle, without code: what may be built is data alone. Throws Error if the
// input asks for what the stack can't give, or for too much.
class Builder {
 public:
  static constexpr std::size_t kMostMemory = std::size_t{512} << 20;
  static constexpr std::size_t kMostTexts = std::size_t{128} << 20;
  static constexpr std::size_t kMostStack = std::size_t{4} << 20;
  static constexpr std::size_t kMostMemo = std::size_t{8} << 20;

  Builder() : arena_(kMostMemory), texts_(kMostTexts) {}

  // Forgets the dump before this one.
  void begin(DictSink* sink);

  [[gnu::always_inline]] void push(const Value& value) { stack_.push(value); }
  void mark() { marks_.push(stack_.size()); }
  void push_list() { push_items(Kind::list); }
  void push_dict() { push_items(Kind::dict); }
  // Make a list of the values above the mark, or of the top `count` values.
  void list_of_marked();
  void list_of_top(std::size_t count);
  // Append to the container below: the values above the mark, or the top.
  void append_marked() {
    const std::size_t from = pop_mark();
    if (from <= floor() || !stack_[from - 1].is(Kind::list)) short_of("a list to append to");
    add(stack_[from - 1], stack_.from(from));
    stack_.cut(from);
  }
  void append_one();
  void set_marked();
  void set_one();

  void memo_put(std::size_t index);
  void memo_append() { memo_put(memo_.size()); }
  void memo_get(std::size_t index) {
    if (index >= memo_.size()) short_of("the remembered value it asks for");
    const Value value = memo_[index];
    // Values that are appended to it now must live as long as it does.
    remembered_ += value.is(Kind::list) || value.is(Kind::dict);
    push(value);
  }

  // Returns the one value that is left. Throws if there is none, or several.
  Value finish();
  // Closes what a cut-off input left open, and returns its root. None if there is none.
  Value salvage();
  // Returns memory for a text that lives as long as the dump, even if a sink takes its dict.
  char* text_memory(std::size_t bytes) { return static_cast<char*>(texts_.take(bytes)); }

 private:
  [[noreturn]] static void full(const char* what);
  [[noreturn]] static void short_of(const char* what);
  std::size_t pop_mark() {
    if (marks_.empty()) short_of("a mark");
    const std::size_t at = marks_.back();
    marks_.cut(marks_.size() - 1);
    return at;
  }
  std::size_t floor() const noexcept { return marks_.empty() ? 0 : marks_.back(); }
  void push_items(Kind kind) { push(new_items(kind)); }
  Value new_items(Kind kind) {
    const Arena::Place place = arena_.place();
    Items* const items =
        new (arena_.take(sizeof(Items))) Items{.place = place, .remembered = remembered_};
    return {kind, Word::other, 0, {.items = items}};
  }
  void add(Value& container, std::span<const Value> values) {
    if (values.empty()) return;
    auto* const chunk = new (arena_.take(sizeof(Chunk) + values.size_bytes())) Chunk;
    chunk->next = nullptr;
    chunk->count = values.size();
    std::uninitialized_copy(values.begin(), values.end(), reinterpret_cast<Value*>(chunk + 1));
    Items& items = *container.items;
    (items.last == nullptr ? items.first : items.last->next) = chunk;
    items.last = chunk;
    items.count += values.size();
  }
  void set(Value& dict, std::size_t from);

  Arena arena_;
  Arena texts_;
  DictSink* sink_ = nullptr;
  Stack<Value> stack_{kMostStack, "stack"};
  Stack<std::size_t> marks_{kMostStack, "marks"};
  std::vector<Value> memo_;
  std::size_t remembered_ = 0;  // how often a container went into the memo or came out of it
};

// Returns the root of a JSON text, as torch's debug server and _dump_fr_trace_json() give it.
// `builder` must have begun; its stack replaces recursion. Throws
// Error with one line if the text ends early or is no JSON. `text` must outlive the values.
Value read_json(std::string_view text, Builder& builder);

// Runs the opcodes of a pickle (protocols 2 to 5) on `builder`, which must have begun. Returns the
// root. Throws Error with one line if the bytes end early, are damaged, or hold an opcode that is
// not plain data: the line names the opcode and what it would do. `bytes` must outlive the values.
Value read_pickle(std::string_view bytes, Builder& builder);

}  // namespace oddrank
