// A nameless record file with its recorder, for tests of what is written.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "os/error.hpp"
#include "trace/format/format.hpp"
#include "trace/read/file.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {

struct Recording {
  explicit Recording(std::size_t size = kRankBytes)
      : bytes(size), file(::memfd_create("record", MFD_CLOEXEC)) {
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) throw_errno("ftruncate");
    recorder = std::make_unique<Recorder>(file, bytes, Process());
  }
  Recorder* operator->() const { return recorder.get(); }
  const Header& header() const { return recorder->header(); }
  RecordFile open() const { return RecordFile(Fd(::dup(file.get())), "of the test"); }
  RecordFile open_memory() const { return RecordFile(recorder->memory(), "in memory"); }
  template <class T>
  const T* at(std::uint64_t offset) const {
    return reinterpret_cast<const T*>(recorder->memory().data() + offset);
  }
  const ThreadSlot& slot(std::uint32_t i) const {
    return *at<ThreadSlot>(header().threads.offset + i * header().threads.stride);
  }

  std::size_t bytes;
  Fd file;
  std::unique_ptr<Recorder> recorder;
};

}  // namespace oddrank::trace
