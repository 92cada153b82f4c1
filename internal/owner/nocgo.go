//go:build !cgo || !linux

package owner

func bind(*control) {}

// DropFunc returns 0, because there is no C code.
func DropFunc() uintptr { return 0 }

// DropObservedFunc returns 0, because there is no C code.
func DropObservedFunc() uintptr { return 0 }

// finishInC recycles the cells. Without cgo their C functions cannot be called.
func finishInC(chain *Cell) {
	for chain != nil {
		next := chain.Next.Cell()
		Recycle(chain)
		chain = next
	}
}
