// The forms of time that lines of logs name.
#include "logs/timestamps.hpp"

#include <chrono>

#include "logs/patterns.hpp"
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

bool is_date(std::int64_t year, std::int64_t month, std::int64_t day) {
  return year >= 1990 && year <= 2199 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

// Takes hh:mm:ss.
bool take_clock(std::string_view& text, std::int64_t& seconds) {
  std::int64_t hour = 0, minute = 0, second = 0;
  if (!take<"%=2:%=2:%=2">(text, hour, minute, second)) return false;
  seconds = hour * 3600 + minute * 60 + second;
  return hour <= 23 && minute <= 59 && second <= 60;
}

// Takes nanoseconds behind a point or comma.
std::optional<std::int64_t> take_fraction(std::string_view& text) {
  if (text.size() < 2 || (text[0] != '.' && text[0] != ',') || !is_digit(text[1])) return {};
  std::int64_t value = 0, unit = kSecond;
  for (text.remove_prefix(1); !text.empty() && is_digit(text[0]); text.remove_prefix(1)) {
    unit /= 10;
    value += (text[0] - '0') * unit;
  }
  return value;
}

Timestamp wall(std::int64_t day, std::int64_t seconds, std::optional<std::int64_t> fraction) {
  return {(day * kDay + seconds) * kSecond + fraction.value_or(0), Timestamp::Clock::wall,
          !fraction};
}

// Takes a zone, "+02:00", "+0200", "+02", perhaps behind a space. Returns the seconds that it is
// ahead of UTC.
std::optional<std::int64_t> take_zone(std::string_view& text) {
  std::string_view left = text;
  take<" ">(left);
  const bool behind = left.starts_with('-');
  std::int64_t hours = 0, minutes = 0;
  if ((!take<"+">(left) && !take<"-">(left)) || left.size() < 2) return {};
  std::string_view digits = left.substr(0, 2);
  if (!take<"%=2">(digits, hours) || hours > 15) return {};
  left.remove_prefix(2);
  const bool colon = take<":">(left);
  if (!take<"%=2">(left, minutes) && (colon || (!left.empty() && is_digit(left[0])))) return {};
  if (minutes > 59) return {};
  text = left;
  const std::int64_t offset = hours * 3600 + minutes * 60;
  return behind ? -offset : offset;
}

// Returns the number of two digits; 100 or more where there are none.
unsigned two_digits(const char* at) {
  const auto tens = static_cast<unsigned char>(at[0] - '0');
  const auto ones = static_cast<unsigned char>(at[1] - '0');
  return tens > 9 || ones > 9 ? 100U : tens * 10U + ones;
}

}  // namespace

// 2026-01-01T00:00:00.123Z, 2026-01-01 00:00:00,123, 2026-01-01_00:00:00, 2026/01/01 00:00:00
std::optional<Timestamp> take_iso(std::string_view& text) {
  constexpr std::size_t kLength = 19;
  if (text.size() < kLength) return {};
  const char* t = text.data();
  const auto parts = [](char c) { return c == '-' || c == '/'; };
  if (!parts(t[4]) || !parts(t[7]) || t[13] != ':' || t[16] != ':') return {};
  if (t[10] != ' ' && t[10] != 'T' && t[10] != '_') return {};
  const unsigned century = two_digits(t), of_century = two_digits(t + 2), month = two_digits(t + 5),
                 day = two_digits(t + 8), hour = two_digits(t + 11), minute = two_digits(t + 14),
                 second = two_digits(t + 17), year = century * 100 + of_century;
  if (of_century > 99 || !is_date(year, month, day) || hour > 23 || minute > 59 || second > 60) {
    return {};
  }
  text.remove_prefix(kLength);
  Timestamp time =
      wall(days(year, month, day), hour * 3600 + minute * 60 + second, take_fraction(text));
  if (take<"Z">(text)) {
    time.clock = Timestamp::Clock::utc;
  } else if (const auto offset = take_zone(text)) {
    time.ns -= *offset * kSecond;
    time.clock = Timestamp::Clock::utc;
  }
  return time;
}

namespace {

// 10/17/2025 16:31:56: month, day, year, as in the logs of nanotron and of transformers' examples.
std::optional<Timestamp> american(std::string_view text) {
  std::int64_t month = 0, day = 0, year = 0, seconds = 0;
  if (!take<"%=2/%=2/%=4 ">(text, month, day, year) || !is_date(year, month, day)) return {};
  if (!take_clock(text, seconds)) return {};
  const auto fraction = take_fraction(text);
  const bool afternoon = text.starts_with(" PM");
  if (afternoon || text.starts_with(" AM")) {  // the hours of a half day: 12, 1, ... 11
    seconds = seconds % (kDay / 2) + (afternoon ? kDay / 2 : 0);
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
std::optional<Timestamp> glog(std::string_view text, std::int64_t reference_ns) {
  std::int64_t date = 0, seconds = 0;
  text.remove_prefix(1);
  if (!take<"%4 ">(text, date) || !is_date(2000, date / 100, date % 100)) return {};
  if (!take_clock(text, seconds)) return {};
  return without_year(date / 100, date % 100, seconds, take_fraction(text), reference_ns);
}

// Apr 19 10:42:28, with a year behind it as ctime() and date have it: Sun Apr 19 10:42:28 UTC 2026,
// or before the clock as NVIDIA's fabric manager has it: [Apr 19 2026 10:42:28]
std::optional<Timestamp> syslog(std::string_view text, std::int64_t reference_ns) {
  constexpr auto kMonths = split<12>("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec");
  const auto* name = std::find(kMonths.begin(), kMonths.end(), text.substr(0, 3));
  if (name == kMonths.end()) return {};
  const std::int64_t month = name - kMonths.begin() + 1;
  std::int64_t day = 0, year = 0, seconds = 0;
  text.remove_prefix(3);
  if (!take<" ">(text)) return {};
  take<" ">(text);
  if (!take<"%2 ">(text, day)) return {};
  const bool year_first = take<"%=4 ">(text, year);
  if (!take_clock(text, seconds) || !is_date(2000, month, day)) return {};
  const auto fraction = take_fraction(text);
  if (!year_first && take<" ">(text)) {
    const auto zone = take_while(text, [](char c) { return c >= 'A' && c <= 'Z'; });
    if (zone.empty() || take<" ">(text)) take<"%=4">(text, year);
  }
  if (is_date(year, month, day)) return wall(days(year, month, day), seconds, fraction);
  return without_year(month, day, seconds, fraction, reference_ns);
}

// 1777777777.123 or [12345.678901], both only at the front or in brackets: elsewhere a number of
// that size may count bytes.
std::optional<Timestamp> seconds_since(std::string_view line, std::size_t at) {
  if (at > 0 && line[at - 1] != ' ' && line[at - 1] != '[' && line[at - 1] != '(') return {};
  std::string_view text = line.substr(at);
  std::int64_t seconds = 0;
  if (!take<"%d">(text, seconds) || seconds > 4'102'444'800) return {};
  const bool point = text.starts_with('.');
  const auto fraction = take_fraction(text);
  if (!fraction) return {};
  const std::size_t before = line.substr(0, at).find_last_not_of(' ');
  const bool front = before == std::string_view::npos;
  const bool bracket = !front && (line[before] == '[' || line[before] == '(');
  if (seconds >= 946'684'800 && (front || bracket)) {
    return Timestamp{seconds * kSecond + *fraction, Timestamp::Clock::utc, false};
  }
  // Since boot only in brackets at the front: "[12345.678901]", "[    1.25]". mpirun tags lines of
  // rank 3 with "[1,3]".
  if (!point || before != 0 || line[0] != '[' || !text.starts_with(']')) return {};
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
      std::string_view text = line.substr(at);
      if (const auto time = take_iso(text)) return time;
      if (const auto time = american(line.substr(at))) return time;
      if (const auto time = seconds_since(line, at)) return time;
      continue;
    }
    if ((kind & kGlog) != 0) {
      if (const auto time = glog(line.substr(at), reference_ns)) return time;
    }
    if ((kind & kMonth) != 0) {
      if (const auto time = syslog(line.substr(at), reference_ns)) return time;
    }
  }
  return {};
}

}  // namespace oddrank::logs
