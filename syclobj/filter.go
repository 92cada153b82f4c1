package syclobj

import (
	"fmt"
	"strconv"
	"strings"
)

// HostFilter is the filter string of the host backend's device.
const HostFilter = "host"

// parseFilter returns the canonical form of a filter string by the rules of Runtime.Device.
func parseFilter(s string) (string, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	switch text {
	case HostFilter:
		return text, nil
	case "":
		return "", filterErr(s, s, "is empty")
	}
	terms := strings.Split(text, ",")
	for i, term := range terms {
		canonical, err := parseTerm(s, strings.TrimSpace(term))
		if err != nil {
			return "", err
		}
		terms[i] = canonical
	}
	return strings.Join(terms, ","), nil
}

// parseTerm returns the canonical form of one alternative.
func parseTerm(whole, part string) (string, error) {
	if part == "" {
		return "", filterErr(whole, part, "is an empty alternative")
	}
	// The fields must be in the order backend, type, number.
	last, fields := 0, strings.Split(part, ":")
	for i, field := range fields {
		var place int
		switch field {
		case "opencl", "level_zero", "cuda", "hip":
			place = 1
		case "cpu", "gpu", "accelerator":
			place = 2
		case HostFilter:
			return "", filterErr(whole, part, "mixes host, which stands alone, with SYCL devices")
		case "":
			return "", filterErr(whole, part, "has an empty field")
		default:
			n, err := strconv.ParseUint(field, 10, 31)
			if err != nil {
				return "", filterErr(whole, field, "is neither a backend (opencl, level_zero, cuda, hip) nor a device type (cpu, gpu, accelerator) nor a device number")
			}
			place, fields[i] = 3, strconv.FormatUint(n, 10)
		}
		if place <= last {
			return "", filterErr(whole, part, "has its fields repeated or out of order")
		}
		last = place
	}
	return strings.Join(fields, ":"), nil
}

// filterErr returns the error of an invalid part of a filter string.
func filterErr(whole, part, reason string) error {
	return &OpError{Op: "Runtime.Device", Kind: ErrArgument, Err: fmt.Errorf("filter string %q: %q %s; a filter is host, or a comma list of "+
		"backend:type:number with at least one of the three, such as opencl:cpu:0, gpu or level_zero:gpu:1", whole, part, reason)}
}
