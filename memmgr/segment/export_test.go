package segment

// SetLimits sets the limits of the process until restore is called.
func SetLimits(mappings, descriptors int) (restore func()) {
	spent.mu.Lock()
	defer spent.mu.Unlock()
	former := spent.most
	spent.most = cost{mappings, descriptors}
	return func() { SetLimits(former.mappings, former.descriptors) }
}

// Populate makes the resource reserve pages as on systems that do not overcommit memory.
func (r *Resource) Populate() { r.populate = true }
