package syclobj

import "unsafe"

// EventFromRef takes over an owned sycl::event*, such as memory managers hand
// out. The caller closes the Event, and does not use the reference any more. A
// nil reference is an event that is complete.
func EventFromRef(ref unsafe.Pointer) *Event {
	if ref == nil {
		return completeEvent
	}
	return newEvent(ref, false)
}
