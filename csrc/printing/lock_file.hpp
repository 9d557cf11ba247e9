// Finds, checks and maps the lock file, once per process.
#pragma once

#include <string>
#include <vector>

#include "printing/layout.hpp"

namespace oddrank::printing {

struct LockFile {
  Table* table;      // stays mapped for the life of the process; children inherit it
  std::string path;  // empty: memory of this process, which only forked children share
  std::string
      refused;  // why better places were not used, one line; empty where the first one served
};

// Tries the folders in order (best first; see base/private_folder.hpp for what is refused). Never
// throws for a place that cannot be used: what is left is memory, which always works or
// std::bad_alloc.
LockFile open_lock_file(const std::vector<std::string>& folders);

}  // namespace oddrank::printing
