// Writes marks, steps, sections and collectives of a record as rows of the trace.
#pragma once

#include <vector>

#include "trace/export/export_text.hpp"
#include "trace/read/dictionary.hpp"
#include "trace/read/file.hpp"
#include "trace/read/records.hpp"
#include "trace/read/threads.hpp"

namespace oddrank::trace {

// Writes steps as an instant and a slice up to the next step, sections as a row per thread, and
// other marks as instants on the row of their thread.
void write_marks(ExportText& out, const std::vector<Mark>& marks,
                 const std::vector<Thread>& threads);

// Writes a row for each group, and more rows if its collectives overlap. Open collectives extend to
// the end of the record. Issued ones, whose ends are not recorded, have no length.
void write_collectives(ExportText& out, const std::vector<Collective>& collectives,
                       const Dictionary& names);

}  // namespace oddrank::trace
