// Package memlimit tells how much memory this process may take: the machine's, or less where
// a control group says so.
package memlimit

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// none is where limits of version 1 that are none begin: the kernel gives the largest number
// of whole pages.
const none = 1 << 60

// Find returns the bytes that the process may take, the least of the limits of its control
// group, those above it, and the machine's memory; and which of them it is, in words. root is
// the root of the file system, of which it reads proc and sys. Errors: no limit can be read
// at all.
func Find(root fs.FS) (bytes uint64, what string, err error) {
	bytes, err = total(root)
	what = "the machine's memory"
	if err != nil {
		bytes = none
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var base, file string
		switch {
		case parts[0] == "0" && parts[1] == "":
			base, file = "sys/fs/cgroup", "memory.max"
		case hasController(parts[1]):
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		// In a container the path is often that of the host, and what is mounted is its end.
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			if n, ok := limit(root, path.Join(base, group, file)); ok && n < bytes {
				bytes, what = n, "the limit of the control group"
			}
			if group == "/" {
				break
			}
		}
	}
	if bytes >= none {
		return 0, "", fmt.Errorf("neither the machine's memory nor a limit can be read: %w", err)
	}
	return bytes, what, nil
}

func hasController(list string) bool {
	for name := range strings.SplitSeq(list, ",") {
		if name == "memory" {
			return true
		}
	}
	return false
}

// limit reads one; false where there is none.
func limit(root fs.FS, name string) (uint64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n < none
}

// total is the machine's memory.
func total(root fs.FS) (uint64, error) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			n, err := strconv.ParseUint(fields[1], 10, 53)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("proc/meminfo has no MemTotal")
}
