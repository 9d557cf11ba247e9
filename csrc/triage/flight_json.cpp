// A JSON reader without recursion. Numbers past 64 bits become reals; invalid UTF-8 passes through.
#include <charconv>

#include "logs/raw_text.hpp"
#include "triage/values.hpp"

namespace oddrank {
namespace {

class JsonReader {
 public:
  JsonReader(std::string_view text, Builder& builder)
      : begin_(text.data()), at_(begin_), end_(at_ + text.size()), builder_(builder) {}

  Value read() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (std::string_view(at_, rest()).starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
    value();
    while (!open_.empty()) next();
    skip_space();
    if (at_ != end_ && *at_ != '\0') damaged("text after its end");
    return builder_.finish();
  }

 private:
  std::size_t rest() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  [[noreturn]] void damaged(const char* what) const {
    throw Error(std::string("it is damaged: ") + what + " at byte " + std::to_string(at_ - begin_));
  }

  void skip_space() noexcept {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  // Returns the next character that is no space, without taking it.
  char peek() {
    skip_space();
    if (at_ == end_) throw Error("it is cut off at byte " + std::to_string(end_ - begin_));
    return *at_;
  }

  void open(char kind) {
    if (open_.size() >= kDeepest) throw Error("it is nested more than 1,000 deep");
    open_.push_back(kind);
    first_ = true;
    kind == '{' ? builder_.push_dict() : builder_.push_list();
    builder_.mark();
    ++at_;
  }

  // Reads one member of the innermost container, or its end.
  void next() {
    const char kind = open_.back();
    char c = peek();
    if (c == (kind == '{' ? '}' : ']')) {
      ++at_;
      open_.pop_back();
      first_ = false;
      return kind == '{' ? builder_.set_marked() : builder_.append_marked();
    }
    if (!first_) {
      if (c != ',') damaged("no comma");
      ++at_;
      c = peek();
    }
    if (kind == '{') {
      if (c != '"') damaged("no key");
      builder_.push(text());
      if (peek() != ':') damaged("no colon");
      ++at_;
    }
    first_ = false;
    value();
  }

  void value() {
    const char c = peek();
    switch (c) {
      case '{':
      case '[':
        open(c);
        return;
      case '"':
        builder_.push(text());
        return;
      case 't':
        return literal("true", make_boolean(true));
      case 'f':
        return literal("false", make_boolean(false));
      case 'n':
        return literal("null", {});
      case 'N':  // Python's json writes these
        return literal("NaN", {});
      default:
        number();
    }
  }

  void literal(std::string_view word, const Value& value) {
    if (rest() < word.size() && word.starts_with(std::string_view(at_, rest()))) {
      at_ = end_;
      peek();
    }
    if (!std::string_view(at_, rest()).starts_with(word)) damaged("an unknown word");
    at_ += word.size();
    builder_.push(value);
  }

  void number() {
    std::int64_t whole = 0;
    const auto [stop, error] = std::from_chars(at_, end_, whole);
    const bool fraction = stop != end_ && (*stop == '.' || *stop == 'e' || *stop == 'E');
    if (error == std::errc() && !fraction) {
      at_ = stop;
      builder_.push(make_integer(whole));
      return;
    }
    double real = 0;
    const auto [after, bad] = std::from_chars(at_, end_, real);
    if (bad == std::errc::invalid_argument) damaged("no value");
    at_ = after;
    builder_.push(make_real(real));
  }

  // Reads a string, which begins here. One without escapes stays where it is.
  Value text() {
    ++at_;
    const char* const from = at_;
    const char* stop = from;
    while (stop != end_ && *stop != '"' && *stop != '\\') ++stop;
    if (stop != end_ && *stop == '"') {
      at_ = stop + 1;
      return sized(from, static_cast<std::size_t>(stop - from));
    }
    while (stop != end_ && *stop != '"') stop += *stop == '\\' && end_ - stop > 1 ? 2 : 1;
    if (stop == end_) {
      at_ = end_;
      peek();
    }
    std::string_view raw(from, static_cast<std::size_t>(stop - from));
    char* const made = builder_.text_memory(raw.size());
    char* to = made;
    while (!raw.empty()) {
      const std::size_t plain = std::min(raw.find('\\'), raw.size());
      to = std::copy_n(raw.begin(), plain, to);
      raw.remove_prefix(plain);
      at_ = raw.data();
      if (!raw.empty() && !logs::take_json_escape(raw, [&to](char byte) { *to++ = byte; })) {
        damaged("a bad escape");
      }
    }
    at_ = stop + 1;
    return sized(made, static_cast<std::size_t>(to - made));
  }

  static Value sized(const char* text, std::size_t size) {
    if (size > UINT32_MAX) throw Error("it holds a text of more than 4 GiB");
    return make_text({text, size});
  }

  static constexpr std::size_t kDeepest = 1000;
  const char* begin_;
  const char* at_;
  const char* end_;
  Builder& builder_;
  std::vector<char> open_;  // { and [ of the containers around
  bool first_ = true;       // nothing was read yet of the innermost
};

}  // namespace

Value read_json(std::string_view text, Builder& builder) {
  return JsonReader(text, builder).read();
}

}  // namespace oddrank
