// The tables of words, and the rule by which numbers find theirs.
#include "metrics/formats.hpp"

#include <charconv>
#include <cmath>

#include "logs/raw_text.hpp"
#include "logs/timestamps.hpp"
#include "os/error.hpp"

namespace oddrank::metrics {
namespace {

// The words of all frameworks together, with | between them. Speeds that are means since the start
// are left out (train_speed(iter/s) of ms-swift, throughput of LLaMA-Factory): a pause looks like a
// drop that lasts in them, and a drop like a slow drift. NeMo's epochs count iterations anew, but
// not its global_step, and its bar has a rounded loss, too.
constexpr Field kFields[] = {
    {"iteration|step|steps|iter|current_steps|global_step/max_steps", kIteration},
    {"global_step|training/global_step|train/global_step|trainer/global_step", kIteration, 2},
    {"batch|_step", kIteration, 0},
    {"total_steps", kTotal},
    {"epoch", kEpoch},
    {"loss|lm loss|lm_loss|total loss|train loss|train_loss|train/loss|training_loss", kLoss},
    {"train_loss_step|loss/train/total|train loss/train/total|train/crossentropyloss", kLoss},
    {"train/ce loss|actor/pg_loss|loss_metrics/global_avg_loss", kLoss},
    {"reduced_train_loss|loss/mean", kLoss, 2},
    {"grad norm|grad_norm|gradnorm|norm|actor/grad_norm|train/grad_norm", kGradNorm},
    {"optim/total_grad_norm|optim/total grad norm|grad-norm", kGradNorm},
    {"learning rate|learning_rate|learning-rate|lr", kLearningRate},
    {"consumed samples|consumed_samples", kSamples},
    {"consumed tokens|consumed_tokens|num_input_tokens_seen|total_tokens", kTokens},
    {"global batch size|global_batch_size", kBatch},
    {"actual seqlen", kSequence},
    {"loss scale", kLossScale},
    {"number of skipped iterations", kSkipped},
    {"number of nan iterations", kNan},
    {"elapsed time per iteration (ms)|time_per_iteration_ms", kStepSeconds, 1, 1e-3},
    {"elapsed_time_per_iteration_ms|ms|step_time_ms|iter_time_ms|dt_ms", kStepSeconds, 1, 1e-3},
    {"elapsed time per iteration (s)|train_step_timing in s|iter time (s)", kStepSeconds},
    {"timing_s/step|perf/time_per_step|iteration-time|step_seconds", kStepSeconds},
    {"time|dt", kStepSeconds, 1, 0},
    {"dt/mean|step_time|step_time_s|iter_time|time/step|sec_per_step", kStepSeconds, 2, 0},
    {"it/sec", kStepSeconds, 1, -1},
    {"elapsed_time|_runtime|run_seconds|timestamp|_timestamp", kTime},
    {"throughput per gpu (tflop/s/gpu)|tflops|tflops_per_gpu|model_tflops_per_gpu", kTflops},
    {"approx flops per gpu", kTflops},
    {"tps|wps|tok/s|tok/sec|tokens/sec|tokens_per_second|tokens_per_sec_per_gpu", kTokensPerSecond},
    {"tokens per gpu per second (tgs)|tokens per second per gpu (tok/s/gpu)", kTokensPerSecond},
    {"perf/throughput|throughput/device/tokens_per_second|throughput/device/tps", kTokensPerSecond},
    {"train throughput/device/tokens_per_sec", kTokensPerSecond},
    {"tokens_per_sec", kTokensPerSecond, 2},
    {"samples per second|samples/sec|samples_per_second|sps", kSamplesPerSecond},
    {"mfu|bf16_mfu", kMfu, 1, 1e-2},
};

constexpr auto kAnchors = split<19>(
    "elapsed time per iteration|MnEtpt/Rnk: |loss: |Loss: | loss | loss:|_loss:| loss=|_loss=|"
    "ropyLoss=|/total|loss\":|loss\" |loss':|tokens_per_sec|grad_norm|loss_step|[step=|[batch=",
    '|');

// The longer words come first: at one place, the first word that fits counts.
constexpr Sign kSigns[] = {
    {"before the start of training step", Row::Kind::start},
    {"Training starts at step", Row::Kind::start},
    {"***** Running training *****", Row::Kind::start},
    {"[Start training]", Row::Kind::start},
    {"loading checkpoint from", Row::Kind::start},
    {"Loading the checkpoint from", Row::Kind::start},
    {"Resuming training from", Row::Kind::start},
    {"Continuing training from", Row::Kind::start},
    {"heckpoint", Row::Kind::checkpoint},
    {"valid loss", Row::Kind::evaluation},
    {"validation", Row::Kind::evaluation},
    {"Running Evaluation", Row::Kind::evaluation},
    {"evaluating", Row::Kind::evaluation},
    {"eval_loss", Row::Kind::evaluation},
    {"val loss", Row::Kind::evaluation},
};

// Roles of a character: kSeparator: a key begins behind it; kAround: it stands around keys and
// before numbers; kStart: a number begins with it.
enum : std::uint8_t { kSeparator = 1, kAround = 2, kStart = 4 };
constexpr std::array<std::uint8_t, 256> kClasses = [] {
  std::array<std::uint8_t, 256> made{};
  for (const char c : std::string_view("|,;{}[]()<>\t")) made[static_cast<unsigned char>(c)] = 1;
  for (const char c : std::string_view(" :=\"'")) made[static_cast<unsigned char>(c)] = 2;
  for (const char c : std::string_view("0123456789-+.nNiI"))
    made[static_cast<unsigned char>(c)] = 4;
  return made;
}();
std::uint8_t class_of(char c) { return kClasses[static_cast<unsigned char>(c)]; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && class_of(text.front()) == kAround) text.remove_prefix(1);
  while (!text.empty() && class_of(text.back()) == kAround) text.remove_suffix(1);
  return text;
}

// Returns the field of a key, in large letters or small ones. Length and last letter tell most
// apart.
const Field* find(std::string_view key) {
  if (key.empty()) return nullptr;
  const auto place = [](std::size_t size, char last) {
    return (size * 8 + static_cast<unsigned char>(last)) % 256;
  };
  static const auto table = [&] {
    std::array<std::vector<Field>, 256> made;
    for (Field field : kFields) {
      for (std::string_view keys = field.key; !keys.empty();) {
        field.key = keys.substr(0, keys.find('|'));
        keys.remove_prefix(std::min(field.key.size() + 1, keys.size()));
        made[place(field.key.size(), field.key.back())].push_back(field);
      }
    }
    return made;
  }();
  for (const Field& field : table[place(key.size(), logs::lower(key.back()))]) {
    if (field.key.size() == key.size() &&
        std::equal(key.begin(), key.end(), field.key.begin(),
                   [](char a, char b) { return a == b || logs::lower(a) == b; })) {
      return &field;
    }
  }
  return nullptr;
}

// Takes the suffix of a number that multiplies it: 41K, 1.2M, 3.5B or 3.5G, 2T.
double take_thousands(std::string_view& text) {
  if (text.empty() || (text.size() > 1 && logs::is_letter(text[1]))) return 1;
  constexpr std::string_view kLetters = "KMBT";
  constexpr std::array kSizes{1e3, 1e6, 1e9, 1e12};
  const std::size_t found = kLetters.find(text[0] == 'G' ? 'B' : text[0]);
  if (found == kNowhere) return 1;
  text.remove_prefix(1);
  return kSizes[found];
}

// Takes the value of a field: a number with its unit; of iterations also "/ 100", their total.
void take(const Field& field, std::string_view& text, Row& row, int& weight) {
  double value = 0;
  const bool of_clock = field.column == kTime, may_be_date = of_clock || field.scale == 0;
  const auto date = may_be_date ? logs::take_iso(text) : std::nullopt;
  if (date) value = static_cast<double>(date->ns) * 1e-9;
  if (!date && !(of_clock ? take_duration(text, value) : take_number(text, value))) return;
  if (of_clock || (may_be_date && value >= kLeastDate && value < kMostDate)) {
    if (!(row[kTime] >= value)) row[kTime] = value;  // a date takes the place of a duration
    return;
  }
  value *= take_thousands(text);
  double scale = field.scale;
  if (scale == 0) scale = text.starts_with("ms") ? 1e-3 : text.starts_with("us") ? 1e-6 : 1;
  if (text.starts_with("PFLOPS") || text.starts_with("GFLOPS")) scale = text[0] == 'P' ? 1e3 : 1e-3;
  if (field.column == kLoss && !std::isfinite(value)) row.loss_is_nan = true;
  if (field.column == kGradNorm && !std::isfinite(value)) row.grad_is_nan = true;
  if (!std::isfinite(value) || (row.has(field.column) && field.weight <= weight)) return;
  weight = field.weight;
  row[field.column] = scale < 0 ? 1 / value : value * scale;
  if (field.column != kIteration) return;
  const std::size_t slash = text.find_first_not_of(' ');
  if (slash == kNowhere || text[slash] != '/') return;
  std::string_view behind = text.substr(slash + 1);
  behind.remove_prefix(std::min(behind.find_first_not_of(' '), behind.size()));
  if (take_number(behind, value) && std::isfinite(value)) {
    row[kTotal] = value;
    text = behind;
  }
}

// Reads a line of Megatron-LM's straggler detector.
bool read_ranked(std::string_view text, Row& row) {
  static const Pattern pattern("MnEtpt/Rnk: {slow_share}TF/{slow_rank}MxEtpt/Rnk: {tflops}");
  Row found;
  if (pattern.read(text, found) == kNowhere) return false;
  const double rank = found[kSlowRank], slowest = found[kSlowShare];
  if (!(slowest > 0 && found[kTflops] >= slowest && rank >= 0 && rank < 1e7)) return false;
  row[kSlowShare] = found[kTflops] / slowest - 1;
  row[kSlowRank] = rank;
  row.kind = Row::Kind::straggler;
  return true;
}

// Returns whether a number begins here.
bool begins_number(std::string_view text, std::size_t at) {
  if (at > 0 && class_of(text[at - 1]) != kAround && text[at - 1] != '(') return false;
  if (logs::is_digit(text[at])) return true;
  std::string_view number = text.substr(at, 12);
  double value = 0;
  return take_number(number, value) && (number.empty() || !logs::is_letter(number[0]));
}

// Units that belong to the words before them: "elapsed time per iteration (ms)".
bool is_unit_of_key(std::string_view text) {
  for (const std::string_view unit : {"(ms)", "(s)", "(TFLOP", "(tgs)", "(Tok"}) {
    if (text.starts_with(unit)) return true;
  }
  return false;
}

}  // namespace

bool take_number(std::string_view& text, double& value) {
  const char* const end = text.data() + text.size();
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  auto [at, error] = std::from_chars(begin, end, value);
  if (at == begin) return false;
  const char* const digits = begin + (*begin == '-' ? 1 : 0);
  const auto is_thousands = [digits, end](const char* comma) {
    return end - comma > 3 && *comma == ',' && std::all_of(comma + 1, comma + 4, logs::is_digit) &&
           (end - comma == 4 || !logs::is_digit(comma[4])) && *digits != '0';
  };
  const bool is_comma = end - at > 1 && *at == ',' && logs::is_digit(at[1]);
  if (is_comma && std::all_of(digits, at, logs::is_digit)) {
    std::string plain(begin, at);
    if (!is_thousands(at)) {  // a decimal comma
      plain += '.';
      ++at;
    }
    for (; is_thousands(at); at += 4) plain.append(at + 1, 3);
    const std::size_t whole = plain.size();
    const std::string_view rest(at, end);
    plain.append(rest.substr(0, rest.find_first_not_of("0123456789.eE+-")));
    at += std::from_chars(plain.data(), plain.data() + plain.size(), value).ptr -
          (plain.data() + whole);
  }
  if (error == std::errc::result_out_of_range) {
    const bool small = std::string_view(begin, at).find('-', 1) != kNowhere;
    value =
        std::copysign(small ? 0 : std::numeric_limits<double>::infinity(), *begin == '-' ? -1 : 1);
  }
  if (at < end && *at == '#') value = kUnknown;  // 1.#QNAN, 1.#INF
  text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  return true;
}

bool take_duration(std::string_view& text, double& seconds) {
  const char* const began = text.data();
  std::string_view rest = text;
  double sum = 0;
  double clock = 0;  // in 1:02:03, the part before the last colon
  double part = 0;
  while (take_number(rest, part) && part >= 0 && part < kMostDate) {
    text = rest;
    if (rest.starts_with(':')) {
      clock = (clock + part) * 60;
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t letter = rest.find_first_not_of(' ');
    const char unit = letter == kNowhere ? 's' : rest[letter];
    sum += (clock + part) * (unit == 'd' ? 86400 : unit == 'h' ? 3600 : unit == 'm' ? 60 : 1);
    clock = 0;
    rest.remove_prefix(std::min(rest.find_first_not_of("dayshm, "), rest.size()));
  }
  seconds = sum;
  return text.data() != began;
}

std::span<const std::string_view> anchors() { return kAnchors; }
std::span<const Sign> signs() { return kSigns; }

bool says(const Row& row) {
  return row.has(kLoss) || row.loss_is_nan || row.has(kStepSeconds) || row.has(kTokensPerSecond) ||
         row.has(kGradNorm);
}

Found read_fields(std::string_view text, Row& row) {
  if (text.find("MnEtpt/Rnk: ") != kNowhere && read_ranked(text, row)) return {0};
  Found found;
  std::array<int, kColumns> weights{};
  std::size_t from = 0;  // behind the last number
  std::size_t cut = 0;   // behind the last separator
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const std::uint8_t kind = class_of(c);
    if (kind == kSeparator) {
      if (c == '(' && at > from && is_unit_of_key(text.substr(at))) {
        at = std::min(text.find(')', at), text.size() - 1);
      } else {
        cut = at + 1;
      }
      continue;
    }
    if (kind != kStart) continue;
    if (c == '-' && at + 1 < text.size() && text[at + 1] == ' ') cut = at + 1;
    if (!begins_number(text, at)) continue;
    const std::size_t start = std::max(from, cut);
    const std::string_view key = trimmed(text.substr(start, at - start));
    std::string_view rest = text.substr(at);
    const Field* field = find(key);
    if (field == nullptr && logs::is_letter(c)) continue;  // "number of nan iterations: 0"
    if (field == nullptr && !key.empty()) {
      const Field* last = find(key.substr(key.rfind(' ') + 1));
      if (last != nullptr && last->column == kIteration) field = last;
    } else if (key.empty()) {
      std::string_view unit = rest;
      double value = 0;
      take_number(unit, value);
      unit = trimmed(unit.substr(0, unit.find_first_of("|,)")));
      if (!unit.empty() && unit != "step") field = find(unit);
      if (field != nullptr && field->column == kIteration) field = nullptr;
    }
    if (field != nullptr) {
      const bool first =
          found.begin == kNowhere && field->column != kEpoch && field->column != kTime;
      if (first) found.begin = start + (text.substr(start, at - start).find_first_not_of(' '));
      if (first && field->column == kIteration) {
        found.is_block = start > 0 && text[start - 1] == '[';
      }
      found.is_dict |= field->column == kLoss && key.data() != text.data() &&
                       (key.data()[-1] == '\'' || key.data()[-1] == '"');
      take(*field, rest, row, weights[field->column]);
    } else {
      double value = 0;
      take_number(rest, value);
    }
    from = std::max(at + 1, text.size() - rest.size());
    // Characters behind a number belong to it, up to a space or a separator.
    while (from < text.size() && text[from] != ' ' && text[from] != ':' &&
           class_of(text[from]) != kSeparator) {
      ++from;
    }
    at = from - 1;
  }
  // A rank that has no loss prints -1 (torchtitan's pipeline stages before the last one).
  if (row[kLoss] == -1) row[kLoss] = kUnknown;
  if (row.has(kIteration) && row[kIteration] < 0) row[kIteration] = kUnknown;
  return found;
}

Pattern::Pattern(std::string_view text) {
  const std::string whole(text);
  std::string unknown;
  std::size_t open = 0, close = 0;
  while ((open = text.find('{')) != kNowhere && (close = text.find('}', open)) != kNowhere) {
    const std::string_view name = text.substr(open + 1, close - open - 1);
    const auto* const found = std::find(kColumnNames.begin(), kColumnNames.end(), name);
    if (found == kColumnNames.end()) unknown.append(unknown.empty() ? "" : ", ").append(name);
    parts_.emplace_back(text.substr(0, open), static_cast<Column>(found - kColumnNames.begin()));
    text.remove_prefix(close + 1);
  }
  if (!parts_.empty() && unknown.empty()) return;
  throw Error("the pattern '" + whole + "' has " +
              (parts_.empty() ? "no names" : "unknown names: " + unknown) +
              "; the known ones, as in 'it#{iteration} L={loss}': " + std::string(kColumnText));
}

std::size_t Pattern::read(std::string_view line, Row& row) const {
  std::size_t begin = kNowhere;
  std::string_view rest = line;
  for (const auto& [before, column] : parts_) {
    const std::size_t at = rest.find(before);
    if (at == kNowhere) return kNowhere;
    if (begin == kNowhere) begin = at;
    rest.remove_prefix(at + before.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    int weight = 0;
    const std::size_t size = rest.size();
    take({"", column}, rest, row, weight);
    if (rest.size() == size) return kNowhere;
  }
  return begin;
}

Csv::Csv(std::string_view header) {
  if (header.starts_with("\xEF\xBB\xBF")) header.remove_prefix(3);
  const std::size_t at = header.find_first_of(",;\t");
  if (at == kNowhere) return;
  separator_ = header[at];
  bool counts = false, says = false;
  while (!header.empty()) {
    columns_.push_back(find(cell(header)));
    counts |= columns_.back() != nullptr && columns_.back()->column == kIteration;
    says |= columns_.back() != nullptr && columns_.back()->column == kLoss;
  }
  if (!counts || !says) columns_.clear();
}

// Takes a cell from the front of a line. One in quotes may hold separators.
std::string_view Csv::cell(std::string_view& line) const {
  const std::size_t quote = line.starts_with('"') ? line.find('"', 1) : 0;
  const std::size_t end =
      std::min(line.find(separator_, std::min(quote, line.size())), line.size());
  const std::string_view taken = trimmed(line.substr(0, end));
  line.remove_prefix(std::min(end + 1, line.size()));
  return taken;
}

bool Csv::read(std::string_view line, Row& row) const {
  std::array<int, kColumns> weights{};
  for (const Field* field : columns_) {
    std::string_view text = cell(line);
    if (field != nullptr) take(*field, text, row, weights[field->column]);
  }
  return row.has(kIteration) && says(row);
}

}  // namespace oddrank::metrics
