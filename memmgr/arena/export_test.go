package arena

// Owns returns how many things the arena holds.
func Owns(a *Arena) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.owned)
}
