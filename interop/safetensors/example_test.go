package safetensors_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Write a model, list its tensors without reading their data, and read rows of one tensor into memory of a pool.
func Example() {
	dir, err := os.MkdirTemp("", "safetensors-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	pool := memmgr.NewPool(memmgr.Host()) // or over memmgr.USM(queue, kind)
	defer func() { _ = pool.Close() }()

	weight, err := usmarray.FromSlice(pool, []float32{1, 2, 3, 4, 5, 6}, []int{3, 2})
	if err != nil {
		log.Fatal(err)
	}
	defer weight.Release()
	bias, err := weight.AsType(pool, usmarray.Bfloat16)
	if err != nil {
		log.Fatal(err)
	}
	defer bias.Release()
	path := filepath.Join(dir, "model.safetensors")
	err = safetensors.Save(ctx, path, map[string]*usmarray.Array{"weight": weight, "bias": bias},
		safetensors.WriteOptions{Metadata: map[string]string{"format": "go"}})
	if err != nil {
		log.Fatal(err)
	}

	f, err := safetensors.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.TypeName, t.Shape, t.NBytes, "bytes")
	}
	rows, err := f.ReadRows(ctx, "weight", pool, 1, 3, safetensors.ReadOptions{Tag: "weights"})
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()
	fmt.Println(rows)
	// Output:
	// weight F32 [3 2] 24 bytes
	// bias BF16 [3 2] 12 bytes
	// [[3. 4.]
	//  [5. 6.]]
}
