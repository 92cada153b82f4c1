package usminfo

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// print writes the report as text.
func (r *report) print(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "usmbridge %s, %s, %s\n", r.Version, r.Go, r.System)
	r.SYCL.print(&b)
	r.Python.print(&b)
	for _, p := range r.Platforms {
		fmt.Fprintf(&b, "\nplatform  %s (%s)\n", p.Name, joinNonEmpty(", ", p.Backend, p.Vendor, p.Version))
		if len(p.Devices) == 0 {
			fmt.Fprintln(&b, "  no devices")
		}
		for _, d := range p.Devices {
			d.print(&b)
		}
	}
	for i, m := range r.Missing {
		if i == 0 {
			fmt.Fprintln(&b, "\nmissing")
		}
		fmt.Fprintf(&b, "  %s: %s\n    to get it: %s\n", m.What, indent(m.Why, 4), m.Get)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *syclInfo) print(b *bytes.Buffer) {
	if s.Found {
		fmt.Fprintf(b, "\nSYCL      %s\n", joinNonEmpty(", ", prefixed("dpctl ", s.DPCTLVersion), prefixed("built with ", s.CompilerVersion)))
		fmt.Fprintf(b, "  library   %s (from %s)\n", s.Path, s.Source)
		if s.OpenCLDrivers != "" {
			fmt.Fprintf(b, "  OpenCL    drivers by %s\n", s.OpenCLDrivers)
		}
		if s.CPUQueues != "" {
			fmt.Fprintf(b, "  OpenCL    queues of the CPU device: %s\n", s.CPUQueues)
		}
		return
	}
	fmt.Fprintf(b, "\nSYCL      not found; the host backend serves\n")
	printAttempts(b, s.Attempts)
}

func (p *pythonInfo) print(b *bytes.Buffer) {
	if p.Found {
		fmt.Fprintf(b, "\nPython    %s\n", p.Version)
		fmt.Fprintf(b, "  program   %s (from %s)\n", p.Executable, p.Source)
		if p.Library != "" {
			fmt.Fprintf(b, "  library   %s\n", p.Library)
		}
		return
	}
	fmt.Fprintf(b, "\nPython    none that could be embedded\n")
	printAttempts(b, p.Attempts)
}

func printAttempts(b *bytes.Buffer, list []attempt) {
	for _, a := range list {
		fmt.Fprintf(b, "  tried     %s\n", indent(joinNonEmpty(": ", a.Source, a.Path, a.Error), 12))
	}
}

func (d device) print(b *bytes.Buffer) {
	mark := ""
	if d.IsDefault {
		mark = "  (default)"
	}
	fmt.Fprintf(b, "  %s%s\n", d.FilterString, mark)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "    %-10s%s\n", name, value)
		}
	}
	line("name", d.Name)
	line("type", d.Type)
	line("driver", joinNonEmpty(", ", d.Vendor, d.Driver))
	line("memory", memory(d))
	switch {
	case d.DLPack == nil:
		line("DLPack", "has no id for it")
	case d.DLPack[0] == kDLCPU:
		line("DLPack", fmt.Sprintf("(%d, %d) kDLCPU", d.DLPack[0], d.DLPack[1]))
	default:
		line("DLPack", fmt.Sprintf("(%d, %d) kDLOneAPI", d.DLPack[0], d.DLPack[1]))
	}
	switch {
	case len(d.USMKinds) > 0:
		line("USM", strings.Join(d.USMKinds, ", "))
	case d.Type == "host":
		line("USM", "none: plain host memory")
	default:
		line("USM", "none: the device cannot have Arrays; use another one")
	}
}

func memory(d device) string {
	if d.GlobalMemSize == 0 {
		return ""
	}
	text := size(d.GlobalMemSize)
	if d.MaxAllocSize != 0 {
		text += ", at most " + size(d.MaxAllocSize) + " in one piece"
	}
	return text
}

// size formats bytes in the largest binary unit of which there is at least one.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func joinNonEmpty(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

// indent indents all lines of a message after the first.
func indent(s string, n int) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
}
