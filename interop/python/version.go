package python

import "fmt"

// Version is a CPython release number, the first three parts of sys.version_info.
type Version struct {
	Major, Minor, Micro int
}

// MinVersion is the oldest CPython that can be used: the first whose stable ABI
// holds the buffer protocol.
var MinVersion = Version{3, 11, 0}

// String returns the version as "3.11.7".
func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro)
}

// less reports whether v is older than w.
func (v Version) less(w Version) bool {
	if v.Major != w.Major {
		return v.Major < w.Major
	}
	if v.Minor != w.Minor {
		return v.Minor < w.Minor
	}
	return v.Micro < w.Micro
}

// versionFromHex decodes CPython's Py_Version: 0x030b07f0 is 3.11.7 final.
func versionFromHex(x uint32) Version {
	return Version{int(x >> 24), int(x >> 16 & 0xff), int(x >> 8 & 0xff)}
}
