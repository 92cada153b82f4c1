package pressure

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// group is the control group with the limit. The files are described in the kernel's documentation
// (admin-guide/cgroup-v2 and admin-guide/cgroup-v1/memory).
type group struct {
	dir string
	files
}

type files struct {
	kind     string // of the file system
	max      string
	usage    string
	inactive string // in memory.stat: page cache that the kernel drops first
}

var (
	v1 = files{"cgroup", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	v2 = files{"cgroup2", "memory.max", "memory.current", "inactive_file"}
)

// findGroup returns the group of the process, or the group above it that has the limit.
func findGroup(mountinfo, cgroups string, limit uint64) (group, error) {
	path, of, err := ownPath(cgroups)
	if err != nil {
		return group{}, err
	}
	mount, dir, err := directory(mountinfo, path, of)
	if err != nil {
		return group{}, err
	}
	own := group{dir, of}
	if _, err := own.number(of.usage); err != nil {
		return group{}, fmt.Errorf("the memory in use of the control group: %w", err)
	}
	for g := own; ; g.dir = filepath.Dir(g.dir) {
		if n, err := g.number(of.max); err == nil && n == limit {
			if _, err := g.number(of.usage); err == nil {
				return g, nil
			}
		}
		if g.dir == mount || g.dir == filepath.Dir(g.dir) {
			return own, nil
		}
	}
}

// ownPath returns the path of the process's group in the hierarchy that controls memory.
func ownPath(cgroups string) (path string, of files, err error) {
	text, err := os.ReadFile(cgroups)
	if err != nil {
		return "", of, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			return f[2], v1, nil
		case f[0] == "0":
			path, of = f[2], v2
		}
	}
	if path == "" {
		return "", of, fmt.Errorf("%s names no control group of memory", cgroups)
	}
	return path, of, nil
}

// directory returns the mount point of a hierarchy and the directory of a group in it.
func directory(mountinfo, path string, of files) (mount, dir string, err error) {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(text)) {
		left, right, _ := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 || r[0] != of.kind || of == v1 && !slices.Contains(strings.Split(r[2], ","), "memory") {
			continue
		}
		// Without a namespace of its own, a container sees the path from the root of the machine, and the
		// mount has that path as its root.
		rel, err := filepath.Rel(l[3], path)
		if err != nil || !filepath.IsLocal(rel) {
			rel = "."
		}
		return l[4], filepath.Join(l[4], rel), nil
	}
	return "", "", fmt.Errorf("%s has no mount of type %s for memory", mountinfo, of.kind)
}

func (g group) number(file string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

// uses reports whether the group uses more than so many bytes. Reading memory.stat is slow on large
// machines, so it is read only if it matters.
func (g group) uses(bytes uint64) bool {
	used, err := g.number(g.usage)
	if err != nil || used <= bytes {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == g.inactive {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return used-min(n, used) > bytes
		}
	}
	return true
}

// stalls returns the percentage of the last ten seconds in which tasks of the group waited for memory, 0 where
// the kernel does not report it.
func (g group) stalls() float64 {
	text, _ := os.ReadFile(filepath.Join(g.dir, "memory.pressure"))
	_, after, _ := strings.Cut(string(text), "some avg10=")
	n, _, _ := strings.Cut(after, " ")
	share, _ := strconv.ParseFloat(n, 64)
	return share
}
