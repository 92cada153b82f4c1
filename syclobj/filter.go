package syclobj

import (
	"fmt"
	"strconv"
	"strings"
)

// HostFilter is the filter string of the host backend's device.
const HostFilter = "host"

// filterTerm is one alternative of a filter. Absent fields match anything.
type filterTerm struct {
	backend Backend    // BackendUnknown if absent
	kind    DeviceType // TypeUnknown if absent
	index   int        // among the devices that match the other fields; -1 if absent
}

// filter is a parsed filter string: the alternatives in order of preference.
type filter []filterTerm

var filterBackends = map[string]Backend{
	"opencl":     BackendOpenCL,
	"level_zero": BackendLevelZero,
	"cuda":       BackendCUDA,
	"hip":        BackendHIP,
}

var filterTypes = map[string]DeviceType{
	"cpu":         TypeCPU,
	"gpu":         TypeGPU,
	"accelerator": TypeAccelerator,
}

// parseFilter parses a filter string by the rules of Runtime.Device.
func parseFilter(s string) (filter, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == HostFilter {
		return filter{{backend: BackendHost, kind: TypeHost, index: -1}}, nil
	}
	if text == "" {
		return nil, filterErr(s, s, "is empty")
	}
	var terms filter
	for part := range strings.SplitSeq(text, ",") {
		term, err := parseTerm(s, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		terms = append(terms, term)
	}
	return terms, nil
}

func parseTerm(whole, part string) (filterTerm, error) {
	term := filterTerm{index: -1}
	if part == "" {
		return term, filterErr(whole, part, "is an empty alternative")
	}
	// The fields must be in the order backend, type, number.
	place := 0
	for field := range strings.SplitSeq(part, ":") {
		at, err := term.set(whole, part, field)
		if err != nil {
			return term, err
		}
		if at <= place {
			return term, filterErr(whole, part, "has its fields repeated or out of order")
		}
		place = at
	}
	return term, nil
}

// set stores one field and returns which of the three it is.
func (t *filterTerm) set(whole, part, field string) (int, error) {
	if b, ok := filterBackends[field]; ok {
		t.backend = b
		return 1, nil
	}
	if d, ok := filterTypes[field]; ok {
		t.kind = d
		return 2, nil
	}
	if field == HostFilter {
		return 0, filterErr(whole, part, "mixes host, which stands alone, with SYCL devices")
	}
	n, err := strconv.ParseUint(field, 10, 31)
	if err != nil {
		if field == "" {
			return 0, filterErr(whole, part, "has an empty field")
		}
		return 0, filterErr(whole, field, "is neither a backend (opencl, level_zero, cuda, hip) nor a device type (cpu, gpu, accelerator) nor a device number")
	}
	t.index = int(n)
	return 3, nil
}

// String returns the canonical form, which parseFilter accepts.
func (f filter) String() string {
	terms := make([]string, len(f))
	for i, t := range f {
		terms[i] = t.String()
	}
	return strings.Join(terms, ",")
}

// String returns the canonical form of one alternative.
func (t filterTerm) String() string {
	if t.backend == BackendHost {
		return HostFilter
	}
	var fields []string
	if t.backend != BackendUnknown {
		fields = append(fields, t.backend.String())
	}
	if t.kind != TypeUnknown {
		fields = append(fields, t.kind.String())
	}
	if t.index >= 0 {
		fields = append(fields, strconv.Itoa(t.index))
	}
	return strings.Join(fields, ":")
}

// isHost reports whether the filter names the host backend.
func (f filter) isHost() bool { return len(f) == 1 && f[0].backend == BackendHost }

// filterErr returns the error of an invalid part of a filter string.
func filterErr(whole, part, reason string) error {
	return &OpError{Op: "Runtime.Device", Kind: ErrArgument, Err: fmt.Errorf("filter string %q: %q %s; a filter is host, or a comma list of "+
		"backend:type:number with at least one of the three, such as opencl:cpu:0, gpu or level_zero:gpu:1", whole, part, reason)}
}
