// Long lines of what may begin or end a prefix, over and over. A search of the rest of the line for
// each of them would take hours.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace oddrank::logs {

// Calls check(line) with each of these lines. word: stands behind each token.
template <class Check>
void each_hostile_line(const std::string& word, Check check) {
  std::istringstream tokens(
      "[\r|\r[rank|[rank1]:|[rank1]:\r|\r[rank1]:\r[rank2]:|[1,0]<stdout>:|]<std|[1,0]<std|"
      "[a@1,0]<stdout>:\r|\x1b[|\x1b]|\r\x1b[m|\r(pid=|\rnode7: |\r7: |[a:rank|[a:rank3] |"
      "[a:rank3] [b:rank4] |\r2026-09-02T15:29:45Z |[pod/a/x] |{\"log\":|it/s|-|[|\r");
  for (std::string token; std::getline(tokens, token, '|');) {
    SCOPED_TRACE(token + word);
    std::string line = "[1,0]<stdout>:x[1,1]<stdout>:\n[1,0]<stdout>:";
    while (line.size() < 1u << 18) line += token + word;
    check(line);
  }
}

}  // namespace oddrank::logs
