// Package bytesize formats sizes of memory for reports and errors.
package bytesize

import "fmt"

// Text returns a number of bytes in the largest unit of which there is at least one,
// such as "1.5 KiB".
func Text(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.4g %ciB", v, units[u])
}
