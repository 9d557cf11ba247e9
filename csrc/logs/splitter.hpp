// Splits a log by the writers of its lines: each byte goes to one file.
#pragma once

#include "logs/pieces.hpp"
#include "logs/prefixes.hpp"
#include "os/fd.hpp"

namespace oddrank::logs {

// Many files that grow at their ends: more than the process may have open, in little memory.
class Outputs {
 public:
  explicit Outputs(std::string folder) : folder_(std::move(folder)) {}

  // Makes a file, which must not exist, and returns its number. Throws SystemError.
  std::size_t add(const std::string& name);

  // Appends to a file. Throws SystemError if it can't be written.
  void write(std::size_t file, std::string_view text);

  // Writes the lines still in memory.
  void flush();

 private:
  struct File {
    std::string path;
    Fd fd;
    std::string waiting;  // not written yet
  };

  void flush(File& file);
  void close_all();

  const std::string folder_;
  std::vector<File> files_;
  std::size_t waiting_ = 0;  // bytes of all files
  std::size_t open_ = 0;
};

// Lines and bytes in a file.
struct Share {
  std::uint64_t lines = 0;
  std::uint64_t bytes = 0;
};

class Splitter {
 public:
  // number: the file of a writer, see add(). strip: leaves launchers' prefixes out.
  Splitter(std::string folder, WriterNumbers::Ask number, bool strip)
      : outputs_(std::move(folder)), numbers_(std::move(number)), strip_(strip) {}

  // Makes a file of the folder and returns its number.
  std::size_t add(const std::string& name);

  void feed(std::string_view chunk);
  // Ends the file that was fed: the next one begins with a new line.
  void finish();
  void flush() { outputs_.flush(); }

  const std::vector<Share>& shares() const { return shares_; }

 private:
  void put(const Piece& piece);
  void end_lines();

  Outputs outputs_;
  WriterNumbers numbers_;
  const bool strip_;
  PieceReader reader_;
  std::vector<Share> shares_;
  std::vector<std::size_t> open_;  // files whose last line has no end yet
};

}  // namespace oddrank::logs
