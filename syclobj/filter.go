package syclobj

import (
	"strconv"
	"strings"
)

// HostFilter is the filter string of the host backend's device.
const HostFilter = "host"

// FilterTerm is one alternative of a filter: what is absent matches anything.
type FilterTerm struct {
	Backend Backend    // BackendUnknown when absent
	Type    DeviceType // TypeUnknown when absent
	Index   int        // among the devices that match the rest; -1 when absent
}

// Filter is a parsed filter string: the alternatives in order of preference.
type Filter []FilterTerm

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

// ParseFilter reads a filter string as SYCL's filter selector defines it:
// "backend:type:number", each part optional, alternatives separated by commas.
// Upper and lower case are the same. "host" alone names the host backend. The
// error is a *FilterError.
func ParseFilter(s string) (Filter, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if text == HostFilter {
		return Filter{{Backend: BackendHost, Type: TypeHost, Index: -1}}, nil
	}
	if text == "" {
		return nil, &FilterError{Filter: s, Part: s, Reason: "is empty"}
	}
	var filter Filter
	for part := range strings.SplitSeq(text, ",") {
		term, err := parseTerm(s, strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		filter = append(filter, term)
	}
	return filter, nil
}

func parseTerm(whole, part string) (FilterTerm, error) {
	term := FilterTerm{Index: -1}
	if part == "" {
		return term, &FilterError{Filter: whole, Part: part, Reason: "is an empty alternative"}
	}
	// Each field must come after the ones before it in backend, type, number.
	place := 0
	for field := range strings.SplitSeq(part, ":") {
		at, err := term.set(whole, part, field)
		if err != nil {
			return term, err
		}
		if at <= place {
			return term, &FilterError{Filter: whole, Part: part, Reason: "has its fields repeated or out of order"}
		}
		place = at
	}
	return term, nil
}

// set stores one field and says which of the three it is.
func (t *FilterTerm) set(whole, part, field string) (int, error) {
	if b, ok := filterBackends[field]; ok {
		t.Backend = b
		return 1, nil
	}
	if d, ok := filterTypes[field]; ok {
		t.Type = d
		return 2, nil
	}
	if field == HostFilter {
		return 0, &FilterError{Filter: whole, Part: part, Reason: "mixes host, which stands alone, with SYCL devices"}
	}
	n, err := strconv.ParseUint(field, 10, 31)
	if err != nil {
		if field == "" {
			return 0, &FilterError{Filter: whole, Part: part, Reason: "has an empty field"}
		}
		return 0, &FilterError{Filter: whole, Part: field, Reason: "is no backend (opencl, level_zero, cuda, hip), no device type (cpu, gpu, accelerator) and no device number"}
	}
	t.Index = int(n)
	return 3, nil
}

// String gives the canonical form, which ParseFilter reads back.
func (f Filter) String() string {
	terms := make([]string, len(f))
	for i, t := range f {
		terms[i] = t.String()
	}
	return strings.Join(terms, ",")
}

// String gives the canonical form of one alternative.
func (t FilterTerm) String() string {
	if t.Backend == BackendHost {
		return HostFilter
	}
	var fields []string
	if t.Backend != BackendUnknown {
		fields = append(fields, t.Backend.String())
	}
	if t.Type != TypeUnknown {
		fields = append(fields, t.Type.String())
	}
	if t.Index >= 0 {
		fields = append(fields, strconv.Itoa(t.Index))
	}
	return strings.Join(fields, ":")
}

// IsHost reports whether the filter names the host backend.
func (f Filter) IsHost() bool { return len(f) == 1 && f[0].Backend == BackendHost }
