// The table of formats, and the ways in which keys and values stand in a line.
#include "metrics/formats.hpp"

#include <algorithm>
#include <cmath>

#include "logs/characters.hpp"
#include "metrics/numbers.hpp"

namespace oddrank::metrics {
namespace {

// Megatron-LM, Megatron-DeepSpeed, GPT-NeoX and their forks. The unit of a time is in its key.
constexpr Field kMegatron[] = {
    {"iteration", kIteration},
    {"consumed samples", kSamples},
    {"consumed tokens", kTokens},
    {"elapsed time per iteration (ms)", kStepSeconds, false, 1e-3},
    {"elapsed time per iteration (s)", kStepSeconds},
    {"throughput per GPU (TFLOP/s/GPU)", kTflops},
    {"TFLOPs", kTflops},
    {"approx flops per GPU", kTflops},
    {"learning rate", kLearningRate},
    {"global batch size", kBatch},
    {"lm loss", kLoss},
    {"lm_loss", kLoss},
    {"loss", kLoss},
    {"total loss", kLoss},
    {"loss scale", kLossScale},
    {"grad norm", kGradNorm},
    {"actual seqlen", kSequence},
    {"number of skipped iterations", kSkipped},
    {"number of nan iterations", kNan},
    {"samples per second", kSamplesPerSecond},
    {"tokens per gpu per second (tgs)", kTokensPerSecond},
    {"Tokens per second per GPU (Tok/s/GPU)", kTokensPerSecond},
};
// NeMo counts iterations anew in each epoch, and steps through all of them.
constexpr Field kNemo[] = {
    {"iteration", kIteration},
    {"global_step", kIteration, true},
    {"lr", kLearningRate},
    {"global_batch_size", kBatch},
    {"reduced_train_loss", kLoss},
    {"grad_norm", kGradNorm},
    {"train_step_timing in s", kStepSeconds},
    {"tokens_per_sec_per_gpu", kTokensPerSecond},
    {"TFLOPS_per_GPU", kTflops},
    {"consumed_samples", kSamples},
};
constexpr Field kNanotron[] = {
    {"iteration", kIteration},
    {"consumed_tokens", kTokens},
    {"time_per_iteration_ms", kStepSeconds, false, 1e-3},
    {"elapsed_time_per_iteration_ms", kStepSeconds, false, 1e-3},
    {"tokens_per_sec", kTokensPerSecond},
    {"global_batch_size", kBatch},
    {"grad_norm", kGradNorm},
    {"lm_loss", kLoss},
    {"lr", kLearningRate},
    {"model_tflops_per_gpu", kTflops},
};
constexpr Field kTorchtitan[] = {
    {"step", kIteration},      {"loss", kLoss},           {"grad_norm", kGradNorm},
    {"tps", kTokensPerSecond}, {"tflops", kTflops},       {"mfu", kMfu, false, 1e-2},
    {"lr", kLearningRate},     {"wps", kTokensPerSecond},
};
constexpr Field kEzpz[] = {
    {"iter", kIteration},
    {"step", kIteration},
    {"loss", kLoss},
    {"loss/mean", kLoss, true},
    {"loss/min", kLossMin},
    {"loss/max", kLossMax},
    {"grad_norm", kGradNorm},
    {"lr", kLearningRate},
    {"dt", kStepSeconds},
    {"dt/mean", kStepSeconds, true},
    {"dt/min", kStepMin},
    {"dt/max", kStepMax},
    {"tps", kTokensPerSecond},
    {"sps", kSamplesPerSecond},
    {"mfu", kMfu, false, 1e-2},
};
// The forward pass tells more than the whole step, in which each rank waits for all.
constexpr Field kEzpzForward[] = {{"dtf/min", kStepMin}, {"dtf/max", kStepMax}};
// HF Trainer, and what LLaMA-Factory and ms-swift add to it or write into their own files. Their
// speeds are left out: 'train_speed(iter/s)' and 'throughput' are means since the start, in which a
// pause looks like a drop that lasts, and a drop like a slow drift. The elapsed time tells more.
constexpr Field kTrainer[] = {
    {"loss", kLoss},
    {"grad_norm", kGradNorm},
    {"learning_rate", kLearningRate},
    {"lr", kLearningRate},
    {"step", kIteration},
    {"current_steps", kIteration},
    {"global_step/max_steps", kIteration},
    {"total_steps", kTotal},
    {"num_input_tokens_seen", kTokens},
    {"total_tokens", kTokens},
    {"elapsed_time", kTime},
};
constexpr Field kNanoGpt[] = {
    {"iter", kIteration},
    {"loss", kLoss},
    {"time", kStepSeconds, false, 0},
    {"mfu", kMfu, false, 1e-2},
};
// llm.c and nanochat. Some of llm.c's numbers have no key, only a unit.
constexpr Field kBars[] = {
    {"step", kIteration},
    {"loss", kLoss},
    {"train loss", kLoss},
    {"norm", kGradNorm},
    {"grad norm", kGradNorm},
    {"grad_norm", kGradNorm},
    {"lr", kLearningRate},
    {"dt", kStepSeconds, false, 0},
    {"ms", kStepSeconds, false, 1e-3},
    {"tok/s", kTokensPerSecond},
    {"tok/sec", kTokensPerSecond},
    {"mfu", kMfu, false, 1e-2},
    {"bf16_mfu", kMfu, false, 1e-2},
};

constexpr Format kFormats[] = {
    {"Megatron", "elapsed time per iteration", "iteration", Split::bars, kMegatron},
    {"Megatron's stragglers", "MnEtpt/Rnk: ", "MnEtpt/Rnk: ", Split::ranked, {}},
    {"NeMo", "reduced_train_loss: ", "iteration", Split::bars, kNemo},
    {"nanotron", "time_per_iteration_ms: ", "iteration: ", Split::bars, kNanotron},
    {"torchtitan", "memory: ", "step:", Split::spaces, kTorchtitan},
    {"ezpz", " loss=", "iter=", Split::equals, kEzpz, kEzpzForward},
    {"ezpz", " loss=", "step=", Split::equals, kEzpz, kEzpzForward},
    {"HF Trainer", "'loss': ", "{", Split::dict, kTrainer},
    {"HF Trainer", "\"loss\": ", "{", Split::dict, kTrainer},
    {"llm.c", " | train loss ", "step ", Split::bars, kBars},
    {"llm.c", " | loss ", "step ", Split::bars, kBars},
    {"nanochat", " | loss: ", "step ", Split::bars, kBars},
    {"nanoGPT", ": loss ", "iter ", Split::commas, kNanoGpt},
};

// The longer words come first: of two that stand at one place the first one counts.
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

void skip_spaces(std::string_view& text) {
  std::size_t at = 0;
  while (at < text.size() && text[at] == ' ') ++at;
  text.remove_prefix(at);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

const Field* find(std::span<const Field> fields, std::string_view key) {
  if (key.empty()) return nullptr;
  for (const Field& field : fields) {
    // Most are told apart by length and last letter, without a call.
    if (field.key.size() == key.size() && field.key.back() == key.back() && field.key == key) {
      return &field;
    }
  }
  return nullptr;
}

// Takes a duration: 1d 2h 3m 4s, 1:02:03, or 1 day, 1:02:03.
bool take_duration(std::string_view& text, double& seconds) {
  std::string_view rest = text;
  double sum = 0;
  double clock = 0;  // of 1:02:03, what stands before the last colon
  double part = 0;
  while (take_number(rest, part) && part >= 0 && part < kLeastDate) {
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
  return sum > 0;
}

// Takes the value of a field: a number with its unit; of iterations also "/ 100", their total.
void take(const Field& field, std::string_view& text, Row& row) {
  double value = 0;
  if (field.column == kTime) {
    if (take_duration(text, value)) row[kTime] = value;
    return;
  }
  if (!take_number(text, value)) return;
  value *= take_thousands(text);
  double scale = field.scale;
  if (scale == 0) scale = text.starts_with("ms") ? 1e-3 : text.starts_with("us") ? 1e-6 : 1;
  if (field.column == kTflops && text.starts_with("PFLOPS")) scale = 1e3;
  if (field.column == kTflops && text.starts_with("GFLOPS")) scale = 1e-3;
  if (field.column == kLoss && !std::isfinite(value)) row.loss_is_nan = true;
  if (field.column == kGradNorm && !std::isfinite(value)) row.grad_is_nan = true;
  if (!std::isfinite(value) || (row.has(field.column) && !field.better)) return;
  row[field.column] = value * scale;
  if (field.column != kIteration) return;
  std::string_view behind = text;
  skip_spaces(behind);
  if (!behind.starts_with('/')) return;
  behind.remove_prefix(1);
  skip_spaces(behind);
  if (take_number(behind, value) && std::isfinite(value)) row[kTotal] = value;
}

// Where the key of a segment ends: "lm loss: 2.3", "loss nan", "iteration    12695/  115311".
std::size_t key_end(std::string_view segment) {
  const std::size_t colon = segment.find(':');
  if (colon != kNowhere) return colon;
  for (std::size_t at = 1; at < segment.size(); ++at) {
    if (segment[at - 1] != ' ' || segment[at] == ' ') continue;
    std::string_view value = segment.substr(at);
    double number = 0;
    if (take_number(value, number)) return at - 1;
  }
  return kNowhere;
}

// separator, other: what ends a segment; both the same: one character does.
void read_bars(std::span<const Field> fields, char separator, char other, std::string_view text,
               Row& row) {
  while (!text.empty()) {
    std::size_t bar = text.find(separator);
    if (other != separator) bar = std::min(bar, text.find(other));
    std::string_view segment = text.substr(0, bar);
    text.remove_prefix(bar == kNowhere ? text.size() : bar + 1);
    skip_spaces(segment);
    if (segment.starts_with('(')) segment.remove_prefix(1);
    if (segment.empty()) continue;
    if (logs::is_digit(segment[0])) {  // the unit tells which number it is
      std::string_view unit = segment;
      double value = 0;
      take_number(unit, value);
      skip_spaces(unit);
      if (unit.ends_with(')')) unit.remove_suffix(1);
      if (const Field* field = find(fields, trimmed(unit))) take(*field, segment, row);
      continue;
    }
    const std::size_t end = key_end(segment);
    if (end == kNowhere) continue;
    const Field* field = find(fields, trimmed(segment.substr(0, end)));
    if (field == nullptr) continue;
    segment.remove_prefix(end + 1);
    skip_spaces(segment);
    take(*field, segment, row);
  }
}

void read_spaces(std::span<const Field> fields, std::string_view text, Row& row) {
  while (true) {
    skip_spaces(text);
    const std::size_t colon = text.find(':');
    if (colon == kNowhere) return;
    std::string_view key = text.substr(0, colon);
    // Some print "step: 640/644 = 99.4%" before the next key.
    key.remove_prefix(key.rfind(' ') + 1);
    const Field* field = find(fields, key);
    text.remove_prefix(colon + 1);
    skip_spaces(text);
    if (field != nullptr) take(*field, text, row);
    text.remove_prefix(std::min(text.find(' '), text.size()));
  }
}

void read_equals(std::span<const Field> fields, std::string_view text, Row& row) {
  while (true) {
    skip_spaces(text);
    const std::size_t equals = text.find('=');
    if (equals == kNowhere) return;
    const Field* field = find(fields, text.substr(0, equals));
    text.remove_prefix(equals + 1);
    if (field != nullptr) take(*field, text, row);
    text.remove_prefix(std::min(text.find(' '), text.size()));
  }
}

// Reads numbers that only count together: if the line has all of them, they replace the others.
void read_together(std::span<const Field> fields, std::string_view text, Row& row) {
  Row found;
  read_equals(fields, text, found);
  for (const Field& field : fields) {
    if (!found.has(field.column)) return;
  }
  for (const Field& field : fields) row[field.column] = found[field.column];
}

void read_dict(std::span<const Field> fields, std::string_view text, Row& row) {
  text.remove_prefix(1);
  while (true) {
    skip_spaces(text);
    if (text.empty() || (text[0] != '\'' && text[0] != '"')) return;
    const std::size_t end = text.find(text[0], 1);
    if (end == kNowhere) return;
    const Field* field = find(fields, text.substr(1, end - 1));
    text.remove_prefix(end + 1);
    if (!text.starts_with(':')) return;
    text.remove_prefix(1);
    skip_spaces(text);
    if (text.starts_with('\'') || text.starts_with('"')) text.remove_prefix(1);
    if (field != nullptr) take(*field, text, row);
    const std::size_t next = text.find_first_of(",}");
    if (next == kNowhere || text[next] == '}') return;
    text.remove_prefix(next + 1);
  }
}

// Takes a rank's estimated throughput: 296.02TF/0.
bool take_ranked(std::string_view text, std::string_view key, double& value, double& rank) {
  const std::size_t found = text.find(key);
  if (found == kNowhere) return false;
  text.remove_prefix(found + key.size());
  if (!take_number(text, value)) return false;
  const std::size_t slash = text.find('/');
  if (slash == kNowhere || slash > 4) return false;
  text.remove_prefix(slash + 1);
  return take_number(text, rank);
}

bool read_ranked(std::string_view text, Row& row) {
  double slowest = 0;
  double fastest = 0;
  double rank = 0;
  double other = 0;
  if (!take_ranked(text, "MnEtpt/Rnk: ", slowest, rank)) return false;
  if (!take_ranked(text, "MxEtpt/Rnk: ", fastest, other)) return false;
  if (!(slowest > 0) || !(fastest >= slowest) || !(rank >= 0 && rank < 1e7)) return false;
  row[kSlowShare] = fastest / slowest - 1;
  row[kSlowRank] = rank;
  row.kind = Row::Kind::straggler;
  return true;
}

}  // namespace

std::span<const Format> formats() { return kFormats; }
std::span<const Sign> signs() { return kSigns; }

bool read_fields(const Format& format, std::string_view text, Row& row) {
  switch (format.split) {
    case Split::bars:
      read_bars(format.fields, '|', '|', text, row);
      break;
    case Split::commas:
      read_bars(format.fields, ',', ':', text, row);
      break;
    case Split::spaces:
      read_spaces(format.fields, text, row);
      break;
    case Split::equals:
      read_equals(format.fields, text, row);
      read_together(format.together, text, row);
      break;
    case Split::dict:
      read_dict(format.fields, text, row);
      break;
    case Split::ranked:
      return read_ranked(text, row);
  }
  // A rank that has no loss prints -1 (torchtitan's pipeline stages before the last one).
  if (row[kLoss] == -1) row[kLoss] = kUnknown;
  const bool counted = row.has(kIteration) && row[kIteration] >= 0;
  const bool says = row.has(kLoss) || row.loss_is_nan || row.has(kStepSeconds) ||
                    row.has(kTokensPerSecond) || row.has(kGradNorm);
  return says && (counted || format.split == Split::dict);
}

}  // namespace oddrank::metrics
