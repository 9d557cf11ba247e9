// Judges iterations one by one: spikes, drops, stalls, NaN, slow ranks, new starts. Pure: numbers
// in, suspects out. The same rows give the same suspects, whether the log is whole or still grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "metrics/excursion.hpp"
#include "metrics/recent.hpp"
#include "metrics/row.hpp"
#include "metrics/sequence.hpp"

namespace oddrank::metrics {

struct Suspect {
  enum class Kind : std::uint8_t {
    loss_spike,   // value: the highest loss, level: before it
    grad_growth,  // the same of the grad norm
    slower,       // value, level: throughput
    stall,        // seconds beyond the usual
    nan_loss,
    nan_grad,
    zero_loss,  // level: the last loss above 0
    skipped,
    disagree,  // value: another loss than `level`
    straggler,
    spread,   // value, level: time of the slowest rank as a multiple of the fastest one's
    restart,  // count: lost iterations, seconds: lost time
  };
  Kind kind = Kind::stall;
  double first = kUnknown;  // iteration where it began
  double fired = kUnknown;  // iteration after which it could be said
  double until = kUnknown;  // iteration where it was over
  double at = kUnknown;     // iteration of `value`
  double value = kUnknown;
  double level = kUnknown;
  double share = kUnknown;  // of a drop or a slow rank: 0.05 is 5 %
  double seconds = kUnknown;
  double count = 0;  // rows, or iterations, that show it
  double known = 0;  // rows that it was compared with
  std::uint64_t line = 0;
  std::uint16_t file = 0;
  std::vector<int> ranks;
};
std::string_view name_of(Suspect::Kind kind);

struct Figures {
  std::uint64_t rows = 0;  // iterations that were printed
  std::uint64_t restarts = 0;
  std::uint64_t left_out = 0;  // suspects beyond kMostSuspects
  double lost_iterations = 0;
  double lost_seconds = 0;
  double down_seconds = 0;  // of these, those without an iteration
  double first_time = kUnknown;
  Row last;                 // the newest number of each column; a loss that is NaN has none
  double pace = kUnknown;   // seconds of an iteration, of the last rows
  double pauses = 0;        // seconds of an iteration that pauses add
  double speed = kUnknown;  // of the last rows
  std::string_view speed_unit;
};

class Verdicts {
 public:
  static constexpr std::size_t kMostSuspects = 1000;
  Verdicts();

  void add(const Step& step);
  // The log has been silent for so many seconds. Adds a suspect once that is a stall.
  void silence(double seconds);
  const std::vector<Suspect>& suspects() const { return suspects_; }
  Figures figures() const;

 private:
  // A series with its detector, and its suspect while there is one.
  struct Series {
    Excursion excursion;
    Suspect::Kind kind;
    std::size_t open = kNone;
    explicit Series(const Rule& rule, Suspect::Kind of) : excursion(rule), kind(of) {}
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t report(Suspect::Kind kind, const Row& row);
  void judge_series(Series& series, double value, const Row& row, std::size_t rows,
                    double evidence = Excursion::kEvidence);
  void judge_speed(const Step& step, double gap);
  void judge_shift(double value, const Row& row);
  Pause judge_pause(const Step& step, double gap);
  void judge_numbers(const Step& step);
  void judge_zeros(const Row& row);
  void remember(const Row& row);
  void judge_stragglers(const Row& row);
  void judge_restart(const Step& step, double gap);
  bool is_round(const Step& step) const;
  double pause_limit(const Step& step) const;

  Series loss_;
  Series grad_;
  Series speed_;
  Series spread_;  // of the ranks' times
  std::vector<BlockShift> shifts_;
  std::size_t open_shift_ = kNone;  // a drop that the detector takes for the level by now
  double shift_level_ = 0;
  double shift_size_ = 0;
  std::vector<Suspect> suspects_;
  Figures figures_;
  Recent recent_;
  std::deque<double> gaps_;  // seconds of an iteration
  std::deque<double> speeds_;
  struct Spell {
    double iterations = 0;
    double seconds = 0;
  };
  Spell by_clock_;  // rows that wait for more
  double usual_gap_ = kUnknown;
  double longest_plain_ = 0;     // pauses without a sign, of late
  double longest_signed_ = 0;    // pauses with one
  std::size_t since_pause_ = 0;  // rows since a checkpoint, an evaluation, or what may be one
  std::size_t needed_ = 0;       // rows that a drop needs

  double interval_ = kUnknown;
  std::size_t run_rows_ = 0;  // since the last start
  std::string_view unit_;
  std::size_t open_nan_ = kNone;
  std::size_t open_nan_grad_ = kNone;
  std::size_t open_zero_ = kNone;
  std::size_t open_skip_ = kNone;
  double nan_grads_ = 0;  // rows one after another
  double first_nan_grad_ = kUnknown;
  double zeros_ = 0;  // rows one after another whose loss is 0
  double first_zero_ = kUnknown;
  double above_zero_ = 0;       // the last loss before them
  bool zero_is_usual_ = false;  // this loss was 0 now and then
  double skips_ = 0;
  bool had_grad_ = false;
  bool had_step_ = false;
  std::size_t disagreement_ = kNone;
  std::deque<std::pair<int, double>> slow_;  // rank, share
  std::vector<int> named_;                   // slow ranks that have a suspect
  bool silent_ = false;
  Step last_step_;
};

}  // namespace oddrank::metrics
