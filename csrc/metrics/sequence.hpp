// Turns the rows of all writers into one row an iteration, in the order of training: joins several
// ranks' rows of one iteration, and finds where the training was started again.
#pragma once

#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "metrics/row.hpp"

namespace oddrank::metrics {

// The ranks that print one iteration do not agree on its loss, though they did before.
struct Disagreement {
  double loss = kUnknown;   // the majority's; if two differ, the first one's
  double other = kUnknown;  // the one farthest away
  std::vector<int> ranks;   // those in the minority, if there is one and all are known
  std::size_t writers = 0;  // that print a loss; 0: they agree
};

// One iteration.
struct Step {
  Row row;
  double before = kUnknown;  // the last iteration before this one
  bool restarted = false;
  double lost = 0;          // iterations that were done again, or will be
  bool checkpoint = false;  // done since the iteration before
  bool evaluation = false;
  Disagreement disagreement;
};

class Sequence {
 public:
  // Takes the next row. Adds the iteration before it to `steps` if this row is of another one.
  void add(const Row& row, std::vector<Step>& steps);
  // Adds the iteration in hand. Rows of it that come later count as its repetition.
  void flush(std::vector<Step>& steps);

 private:
  enum class Place { same, next, late };  // next: also where it goes back
  void count_on(Row& row);
  Place place_of(const Row& row);
  bool& sign(Row::Kind kind) { return signs_[static_cast<std::size_t>(kind)]; }
  void begin(const Row& row, bool restarted);
  void join(const Row& row);
  void judge_losses();
  void remember(const Row& row);

  Step step_;
  bool in_hand_ = false;
  bool started_ = false;                               // step_ holds an iteration, in hand or not
  std::array<bool, 5> signs_{};                        // since the last row, by kind
  std::map<double, double> before_epoch_;              // epoch -> iterations before it
  double counted_ = 0;                                 // for rows that name no iteration
  double interval_ = kUnknown;                         // iterations between two rows
  double pace_ = kUnknown;                             // seconds between two rows
  std::vector<std::pair<int, double>> losses_;         // in the iteration in hand: rank, loss
  std::size_t agreed_ = 0;                             // iterations on which several writers agreed
  bool own_losses_ = false;                            // writers print losses of their own
  std::unordered_map<std::uint64_t, double> last_of_;  // writer -> its last iteration
  std::deque<std::pair<double, double>> recent_;       // iteration, loss
};

}  // namespace oddrank::metrics
