// The forms of time that lines of logs name.
#include "logs/timestamps.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "logs/raw_text.hpp"
#include "os/encoding.hpp"

namespace oddrank::logs {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kDay = 86'400;
constexpr std::size_t kWithin = 256;

// Days since 1970.
std::int64_t days(std::int64_t year, std::int64_t month, std::int64_t day) {
  namespace time = std::chrono;
  const time::year_month_day date(time::year(static_cast<int>(year)),
                                  time::month(static_cast<unsigned>(month)),
                                  time::day(static_cast<unsigned>(day)));
  return time::sys_days(date).time_since_epoch().count();
}

std::int64_t year_of(std::int64_t ns) {
  namespace time = std::chrono;
  const time::sys_time<time::nanoseconds> at(time::nanoseconds{ns});
  return static_cast<int>(time::year_month_day(time::floor<time::days>(at)).year());
}

// Reads fields from a text. The first that does not fit makes all that follow fail, too.
class Fields {
 public:
  Fields(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  bool ok() const { return ok_; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool skip(std::string_view any_of) {
    if (!ok_ || at_ >= text_.size() || any_of.find(text_[at_]) == std::string_view::npos) {
      return ok_ = false;
    }
    ++at_;
    return true;
  }
  std::int64_t number(std::size_t least, std::size_t most, std::int64_t low, std::int64_t high) {
    std::int64_t value = 0;
    std::size_t got = 0;
    while (ok_ && got < most && at_ < text_.size() && is_digit(text_[at_])) {
      value = value * 10 + (text_[at_++] - '0');
      ++got;
    }
    ok_ = ok_ && got >= least && value >= low && value <= high;
    return value;
  }
  // Nanoseconds behind a point or comma.
  std::optional<std::int64_t> fraction() {
    if (!ok_ || (peek() != '.' && peek() != ',') || at_ + 1 >= text_.size() ||
        !is_digit(text_[at_ + 1])) {
      return {};
    }
    std::int64_t value = 0;
    std::int64_t unit = kSecond;
    for (++at_; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
      if (unit == 1) continue;
      unit /= 10;
      value += (text_[at_] - '0') * unit;
    }
    return value;
  }
  std::int64_t clock() {  // hh:mm:ss
    std::int64_t seconds = number(2, 2, 0, 23) * 3600;
    skip(":");
    seconds += number(2, 2, 0, 59) * 60;
    skip(":");
    return seconds + number(2, 2, 0, 60);
  }
  // Skips a zone's name and the space behind it: "UTC ".
  void zone() {
    const std::size_t before = at_;
    while (peek() >= 'A' && peek() <= 'Z') ++at_;
    if (at_ != before) skip(" ");
  }
  std::size_t at() const { return at_; }

 private:
  std::string_view text_;
  std::size_t at_;
  bool ok_ = true;
};

Timestamp wall(std::int64_t day, std::int64_t seconds, std::optional<std::int64_t> fraction) {
  return {(day * kDay + seconds) * kSecond + fraction.value_or(0), Timestamp::Clock::wall,
          !fraction};
}

// Returns the seconds that a zone is ahead of UTC, and moves behind it: "+02:00", "+0200", "+02",
// perhaps behind a space.
std::optional<std::int64_t> take_zone(Fields& from) {
  Fields f = from;
  if (f.peek() == ' ') f.skip(" ");
  const char sign = f.peek();
  if (sign != '+' && sign != '-') return {};
  f.skip("+-");
  std::int64_t offset = f.number(2, 2, 0, 15) * 3600;
  if (!f.ok()) return {};
  const bool colon = f.peek() == ':';
  if (colon) f.skip(":");
  if (colon || is_digit(f.peek())) offset += f.number(2, 2, 0, 59) * 60;
  if (!f.ok() || is_digit(f.peek())) return {};
  from = f;
  return sign == '+' ? offset : -offset;
}

// Returns the number of two digits; 100 or more where there are none.
unsigned two_digits(const char* at) {
  const auto tens = static_cast<unsigned char>(at[0] - '0');
  const auto ones = static_cast<unsigned char>(at[1] - '0');
  return tens > 9 || ones > 9 ? 100U : tens * 10U + ones;
}

}  // namespace

// 2026-01-01T00:00:00.123Z, 2026-01-01 00:00:00,123, 2026-01-01_00:00:00, 2026/01/01 00:00:00
std::optional<Timestamp> take_iso(std::string_view text, std::size_t& at) {
  constexpr std::size_t kLength = 19;
  if (text.size() - at < kLength) return {};
  const char* t = text.data() + at;
  const auto is_date = [](char c) { return c == '-' || c == '/'; };
  if (!is_date(t[4]) || !is_date(t[7]) || t[13] != ':' || t[16] != ':') return {};
  if (t[10] != ' ' && t[10] != 'T' && t[10] != '_') return {};
  const unsigned century = two_digits(t), of_century = two_digits(t + 2), month = two_digits(t + 5),
                 day = two_digits(t + 8), hour = two_digits(t + 11), minute = two_digits(t + 14),
                 second = two_digits(t + 17), year = century * 100 + of_century;
  if (of_century > 99 || year < 1990 || year > 2199 || month < 1 || month > 12 || day < 1 ||
      day > 31 || hour > 23 || minute > 59 || second > 60) {
    return {};
  }
  Fields f(text, at + kLength);
  Timestamp time = wall(days(year, month, day), hour * 3600 + minute * 60 + second, f.fraction());
  if (f.peek() == 'Z') {
    f.skip("Z");
    time.clock = Timestamp::Clock::utc;
  } else if (const auto offset = take_zone(f)) {
    time.ns -= *offset * kSecond;
    time.clock = Timestamp::Clock::utc;
  }
  at = f.at();
  return time;
}

namespace {

// 10/17/2025 16:31:56: month, day, year, as in the logs of nanotron and of transformers' examples.
std::optional<Timestamp> american(std::string_view text, std::size_t at) {
  constexpr std::size_t kLength = 19;
  if (text.size() - at < kLength) return {};
  const char* t = text.data() + at;
  if (t[2] != '/' || t[5] != '/' || t[10] != ' ' || t[13] != ':' || t[16] != ':') return {};
  Fields f(text, at);
  const std::int64_t month = f.number(2, 2, 1, 12);
  f.skip("/");
  const std::int64_t day = f.number(2, 2, 1, 31);
  f.skip("/");
  const std::int64_t year = f.number(4, 4, 1990, 2199);
  f.skip(" ");
  std::int64_t seconds = f.clock();
  const auto fraction = f.fraction();
  if (!f.ok()) return {};
  const std::string_view half = text.substr(f.at(), 3);
  if (half == " AM" || half == " PM") {  // the hours of a half day: 12, 1, ... 11
    seconds = seconds % (kDay / 2) + (half == " PM" ? kDay / 2 : 0);
  }
  return wall(days(year, month, day), seconds, fraction);
}

// Picks the year that puts a date last before the reference, with a day for clocks that go wrong.
Timestamp without_year(std::int64_t month, std::int64_t day, std::int64_t seconds,
                       std::optional<std::int64_t> fraction, std::int64_t reference_ns) {
  const std::int64_t year = year_of(std::max<std::int64_t>(reference_ns, 0));
  const Timestamp time = wall(days(year, month, day), seconds, fraction);
  if (time.ns <= reference_ns + kDay * kSecond) return time;
  return wall(days(year - 1, month, day), seconds, fraction);
}

// glog, as c10 writes it: a letter, the month without a zero, the day: E419 10:42:28.858931807
std::optional<Timestamp> glog(std::string_view text, std::size_t at, std::int64_t reference_ns) {
  std::size_t digits = 0;
  while (at + 1 + digits < text.size() && is_digit(text[at + 1 + digits])) ++digits;
  if (digits != 3 && digits != 4) return {};
  Fields f(text, at + 1);
  const std::int64_t month = f.number(digits - 2, digits - 2, 1, 12);
  const std::int64_t day = f.number(2, 2, 1, 31);
  f.skip(" ");
  const std::int64_t seconds = f.clock();
  const auto fraction = f.fraction();
  if (!f.ok()) return {};
  return without_year(month, day, seconds, fraction, reference_ns);
}

// Apr 19 10:42:28, with a year behind it as ctime() and date have it: Sun Apr 19 10:42:28 UTC 2026,
// or before the clock as NVIDIA's fabric manager has it: [Apr 19 2026 10:42:28]
std::optional<Timestamp> syslog(std::string_view text, std::size_t at, std::int64_t reference_ns) {
  constexpr auto kMonths = split<12>("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec");
  if (at + 3 >= text.size() || text[at + 3] != ' ') return {};
  const auto* month = std::find(kMonths.begin(), kMonths.end(), text.substr(at, 3));
  if (month == kMonths.end()) return {};
  Fields f(text, at + 3);
  f.skip(" ");
  if (f.peek() == ' ') f.skip(" ");
  const std::int64_t day = f.number(1, 2, 1, 31);
  f.skip(" ");
  const std::int64_t number = month - kMonths.begin() + 1;
  Fields year = f;
  std::int64_t named = year.number(4, 4, 1990, 2199);
  const bool year_first = year.skip(" ");
  if (year_first) f = year;
  const std::int64_t seconds = f.clock();
  if (!f.ok()) return {};
  const auto fraction = f.fraction();
  if (!year_first) {
    year = f;
    year.skip(" ");
    year.zone();
    named = year.number(4, 4, 1990, 2199);
  }
  if (year.ok()) return wall(days(named, number, day), seconds, fraction);
  return without_year(number, day, seconds, fraction, reference_ns);
}

// 1777777777.123 or [12345.678901], both only at the front or in brackets: elsewhere a number of
// that size may count bytes.
std::optional<Timestamp> seconds_since(std::string_view text, std::size_t at) {
  if (at > 0 && text[at - 1] != ' ' && text[at - 1] != '[' && text[at - 1] != '(') return {};
  Fields f(text, at);
  const std::int64_t seconds = f.number(1, 10, 0, 4'102'444'800);
  if (f.peek() != '.' && f.peek() != ',') return {};
  const bool point = f.peek() == '.';
  const auto fraction = f.fraction();
  if (!f.ok() || !fraction) return {};
  const std::size_t before = text.substr(0, at).find_last_not_of(' ');
  const bool front = before == std::string_view::npos;
  const bool bracket = !front && (text[before] == '[' || text[before] == '(');
  if (seconds >= 946'684'800 && (front || bracket)) {
    return Timestamp{seconds * kSecond + *fraction, Timestamp::Clock::utc, false};
  }
  // Since boot only in brackets at the front: "[12345.678901]", "[    1.25]". mpirun tags lines of
  // rank 3 with "[1,3]".
  if (!point || before != 0 || text[0] != '[' || f.peek() != ']') return {};
  return Timestamp{seconds * kSecond + *fraction, Timestamp::Clock::boot, false};
}

// The things that a byte may begin or be part of.
enum Kind : std::uint8_t { kDigit = 1, kLetter = 2, kGlog = 4, kMonth = 8, kEscape = 16 };
constexpr std::array<std::uint8_t, 256> kKinds = [] {
  std::array<std::uint8_t, 256> kinds{};
  for (std::size_t byte = 0; byte < kinds.size(); ++byte) {
    const auto c = static_cast<char>(byte);
    kinds[byte] = is_digit(c) ? kDigit : is_letter(c) ? kLetter : 0;
  }
  for (const unsigned char c : std::string_view("DIWEFCV")) kinds[c] |= kGlog;
  for (const unsigned char c : std::string_view("JFMASOND")) kinds[c] |= kMonth;
  kinds['\x1b'] = kEscape;
  return kinds;
}();

}  // namespace

std::optional<Timestamp> find_time(std::string_view line, std::int64_t reference_ns) {
  line = line.substr(0, kWithin);
  unsigned before = 0;  // the kind of the byte before
  for (std::size_t at = 0; at < line.size(); ++at) {
    const unsigned kind = kKinds[static_cast<unsigned char>(line[at])];
    const bool begins = (std::exchange(before, kind) & (kDigit | kLetter)) == 0;
    if (kind == kEscape) {  // a colour's last byte is a letter, which is no part of the time
      at = behind_escape(line, at) - 1;
      continue;
    }
    if (!begins || (kind & (kDigit | kGlog | kMonth)) == 0) continue;
    if ((kind & kDigit) != 0) {
      if (at > 0 && line[at - 1] == '.') continue;
      if (const auto time = take_iso(line, at)) return time;
      if (const auto time = american(line, at)) return time;
      if (const auto time = seconds_since(line, at)) return time;
      continue;
    }
    if ((kind & kGlog) != 0) {
      if (const auto time = glog(line, at, reference_ns)) return time;
    }
    if ((kind & kMonth) != 0) {
      if (const auto time = syslog(line, at, reference_ns)) return time;
    }
  }
  return {};
}

}  // namespace oddrank::logs
