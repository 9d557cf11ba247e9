// Measures how fast reverse DNS answers: torch's store uses it at every connection.
#pragma once

#include "control/page.hpp"

namespace oddrank::control {

// Starts a thread that may hang as long as the resolver; notes its start and end on the page.
void measure_resolver(Page& page);

}  // namespace oddrank::control
