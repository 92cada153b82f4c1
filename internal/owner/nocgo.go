//go:build !cgo || !linux

package owner

func bind(*control) {}

// DropFunc returns the address of usmb_cell_drop, void (*)(void *cell): drops
// one reference from any thread, with no lock and no entry into Go. It is 0
// when the module was built without cgo.
func DropFunc() uintptr { return 0 }

// finishInC recycles: without C no cell can have a C function at zero that
// anybody could call.
func finishInC(chain *Cell) {
	for chain != nil {
		next := chain.Next.Cell()
		Recycle(chain)
		chain = next
	}
}
