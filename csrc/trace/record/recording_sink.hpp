// The sink that writes into this process's record file.
#pragma once

#include "trace/record/collective_sink.hpp"
#include "trace/record/recorder.hpp"

namespace oddrank::trace {

// `current` says who records now, or nullptr: not armed, stopped, or a child that was just forked.
// It is called from any thread. The recorders it names must live as long as the process.
const CollectiveSink& recording_sink(Recorder* (*current)() noexcept) noexcept;

}  // namespace oddrank::trace
