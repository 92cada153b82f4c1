package segment

// Populate makes the resource reserve pages as on systems that do not overcommit memory.
func (r *Resource) Populate() { r.options.populate = true }
