package syclobj

import (
	"fmt"
	"strings"
)

// USMB_CL_*: how OpenCL's own build ended.
const (
	clBuilt = iota
	clRefused
	clNoLoader
	clNoDevice
	clFailed
)

// cutLog makes text of what was kept of a log of so many bytes: what is no text is replaced,
// and where it was cut it ends with a whole line and says so.
func cutLog(b []byte, total int) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(string(b), "\x00", ""), "\uFFFD")
	if total <= len(b) {
		return s
	}
	if end := strings.LastIndexByte(s, '\n'); end > 0 {
		s = s[:end]
	}
	return s + fmt.Sprintf("\n(cut: %d bytes in all)", total)
}
