// What may begin or end a prefix. Over and over in one line, a search of the rest of the line for
// each of them would take hours.
#pragma once

namespace oddrank::logs {

constexpr const char* kHostileTokens[] = {"[\r",
                                          "\r[rank",
                                          "[rank1]:",
                                          "[rank1]:\r",
                                          "\r[rank1]:\r[rank2]:",
                                          "[1,0]<stdout>:",
                                          "]<std",
                                          "[1,0]<std",
                                          "[a@1,0]<stdout>:\r",
                                          "\x1b[",
                                          "\x1b]",
                                          "\r\x1b[m",
                                          "\r(pid=",
                                          "\rnode7: ",
                                          "\r7: ",
                                          "[a:rank",
                                          "[a:rank3] ",
                                          "[a:rank3] [b:rank4] ",
                                          "\r2026-09-02T15:29:45Z ",
                                          "[pod/a/x] ",
                                          "{\"log\":",
                                          "it/s",
                                          "-",
                                          "[",
                                          "\r"};

}  // namespace oddrank::logs
