// Folders that only this user can reach, for files that other users must not block, read or swap.
#pragma once

#include <string>

#include "os/clock.hpp"
#include "os/fd.hpp"

namespace oddrank {

// Opens `path` (absolute) and makes the components that are missing, 0700. Returns a
// descriptor for openat(); throws Error or SystemError that names the component refused.
//
// The way there is walked component by component and each must be a folder that no stranger can
// exchange: owned by root or by us and not writable by group or others, unless it is sticky (like
// /tmp), where only the owner of an entry can rename it. The last one must be ours and closed to
// group and others for writing. A symbolic link is followed only where strangers cannot write, and
// only root's or our own; in /tmp and its like it is refused.
// In a container without a mapping for root, the kernel's "overflow" user counts as root.
Fd open_private_folder(const std::string& path);

// openat(folder, name) for a regular file of ours with O_NOFOLLOW and O_CLOEXEC, made 0600 where it
// is missing. Refuses a file that belongs to somebody else, is not regular, has several names or is
// open to others. Throws as above.
Fd open_private_file(int folder, const std::string& name, int flags);

// Takes flock(LOCK_EX) on a file or folder. Returns 0, EWOULDBLOCK at the deadline, or at once
// another errno (a file system without locks).
int lock_exclusively(int fd, Deadline deadline) noexcept;

}  // namespace oddrank
