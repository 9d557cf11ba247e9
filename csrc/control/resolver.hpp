// Measures whether reverse DNS answers: torch's store asks it at every connection.
#pragma once

#include "control/page.hpp"

namespace oddrank::control {

// Starts a thread that may hang as long as the resolver does; the page says when it came back.
void measure_resolver(Page& page);

}  // namespace oddrank::control
