package segment

// Populate has the resource take pages as where the system promises no more memory
// than it has.
func (r *Resource) Populate() { r.options.populate = true }
