// The formats of training frameworks' lines: a table, a row each. The only place that knows them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "metrics/row.hpp"

namespace oddrank::metrics {

// A number of a line: its key, as the framework prints it, and where it goes.
struct Field {
  std::string_view key;
  Column column;
  bool better = false;  // takes the place of another field's number
  double scale = 1;     // to the column's unit; 0: the unit stands behind the number (ms, s)
};

// How a line's keys and values stand side by side.
enum class Split : std::uint8_t {
  bars,    // iteration 10/ 100 | lm loss: 2.3E+00 | 2300.5 ms | 41000 tok/s
  commas,  // iter 1631: loss 4.0863, time 561.94ms, mfu 12.3%
  spaces,  // step:  2  loss:  7.9722  tps: 89,241
  equals,  // iter=10 loss=1.18 loss/mean=1.19
  dict,    // {'loss': 0.1, 'grad_norm': '1.2'}
  ranked,  // MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8
};

struct Format {
  std::string_view framework;
  std::string_view anchor;  // a word that each of its lines has, at least 6 bytes long
  std::string_view begin;   // the numbers begin with the last of these before the anchor
  Split split;
  std::span<const Field> fields;
  std::span<const Field> together{};  // of Split::equals: replace numbers of `fields`, all or none
};

// A word of lines that say what the job does between two iterations.
struct Sign {
  std::string_view word;
  Row::Kind kind;
};

std::span<const Format> formats();
std::span<const Sign> signs();

// Reads the numbers of a text, which begins at its format's `begin`, into a row. Returns false if
// it is none of this format's lines. Of a number that stands there twice, the first one counts.
bool read_fields(const Format& format, std::string_view text, Row& row);

}  // namespace oddrank::metrics
