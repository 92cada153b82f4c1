package syclobj

// WaitingFor returns how many wait for an event so that they can give up.
func WaitingFor(e *Event) int {
	awaiting.mu.Lock()
	defer awaiting.mu.Unlock()
	if e.wait == nil {
		return 0
	}
	return e.wait.users
}
