// The sink that writes into this process's record file.
#pragma once

#include "trace/write/collective_sink.hpp"
#include "trace/write/recorder.hpp"

namespace oddrank::trace {

// Returns the sink. `current` returns the recorder to use, or nullptr: not armed, stopped, or in a
// child just after fork. It is called from any thread; its recorders must never be destroyed.
const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept;

}  // namespace oddrank::trace
