package arena

// Owns returns the number of objects that the arena owns.
func Owns(a *Arena) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.owned)
}
