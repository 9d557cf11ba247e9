// Marks, steps, sections and collectives of a record as rows of the picture.
#pragma once

#include <vector>

#include "trace/read/collectives.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/export_text.hpp"
#include "trace/read/file.hpp"
#include "trace/read/records.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Steps: an instant where step() was called and a slice up to the next one. Sections: a row for
// each thread. Other marks: instants on the row of their thread.
void write_marks(ExportText& out, const std::vector<Mark>& marks,
                 const std::vector<Thread>& threads);

// A row for each group, and more where its collectives overlap. Open ones run to the end and say
// so; one of which no end will ever be recorded (a device's) has no length.
void write_collectives(ExportText& out, const std::vector<Collective>& collectives,
                       const Dictionary& names);

}  // namespace oddrank::trace
