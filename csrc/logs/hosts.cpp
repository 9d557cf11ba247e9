// Tells names of hosts from words, files and values in front of a colon.
#include "logs/hosts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "logs/characters.hpp"

namespace oddrank::logs {
namespace {

bool is_small(char c) { return is_lower(c) || is_digit(c) || c == '-' || c == '.'; }

char lowered(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Returns whether a name is a word with a number: gpu0, step-12, Epoch_3. A number with a zero in
// front is a host's: gpu07.
bool is_word(std::string_view word, std::string_view number) {
  constexpr std::array kWords{"step",  "epoch", "iter",   "gpu",  "cuda",  "layer", "python",
                              "torch", "stage", "fold",   "loss", "test",  "line",  "phase",
                              "round", "batch", "h",      "nccl", "utf",   "sha",   "md",
                              "int",   "float", "fp",     "bf",   "v",     "port",  "pid",
                              "conv",  "fc",    "device", "uint", "block", "param"};
  if (number.size() > 1 && number[0] == '0') return false;
  while (!word.empty() && !is_letter(word.back()) && !is_digit(word.back())) word.remove_suffix(1);
  return std::any_of(kWords.begin(), kWords.end(), [word](std::string_view each) {
    return std::equal(word.begin(), word.end(), each.begin(), each.end(),
                      [](char a, char b) { return lowered(a) == b; });
  });
}

// Returns whether the labels of a name are those of a host: none is a number (0.5,
// model.layers.0.mlp), or four are (an address). The last is no suffix of a source file.
bool has_labels_of_host(std::string_view name) {
  std::size_t labels = 0, numbers = 0;
  std::string_view label;
  for (std::string_view rest = name; !rest.empty(); ++labels) {
    label = rest.substr(0, rest.find('.'));
    if (std::all_of(label.begin(), label.end(), is_digit)) ++numbers;
    rest.remove_prefix(std::min(label.size() + 1, rest.size()));
  }
  constexpr std::array kSources{"py", "cpp", "cc", "cu", "h", "hpp", "cuh", "c", "pyx", "sh"};
  const bool is_file =
      labels > 1 && std::find(kSources.begin(), kSources.end(), label) != kSources.end();
  return !is_file && (numbers == 0 || (numbers == 4 && labels == 4));
}

}  // namespace

bool may_be_host(std::string_view name) {
  const std::size_t letters = name.find_last_not_of("0123456789") + 1;
  const std::string_view word = name.substr(0, letters), number = name.substr(letters);
  if (std::all_of(name.begin(), name.end(), is_small)) {
    if (std::none_of(name.begin(), name.end(), is_digit)) return name == "localhost";
  } else if (number.empty() || word.empty() || (word.back() != '-' && word.back() != '_')) {
    return false;
  }
  return !is_word(word, number) && has_labels_of_host(name);
}

bool is_value(std::string_view text) {
  if (text.starts_with("nan") || text.starts_with("inf")) return text.size() == 3;
  return !text.empty() && text.find_first_not_of("0123456789.+-eE") == std::string_view::npos;
}

}  // namespace oddrank::logs
