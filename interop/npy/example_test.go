package npy_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Write a file and read it into memory of a pool.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "npy-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	pool := memmgr.NewPool(memmgr.Host()) // or over memmgr.USM(queue, kind)
	defer func() { _ = pool.Close() }()

	a, err := usmarray.Arange[float32](pool, 0, 1, 6)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	path := filepath.Join(dir, "numbers.npy")
	if err := npy.Save(ctx, path, a, npy.WriteOptions{}); err != nil {
		log.Fatal(err)
	}
	b, err := npy.Load(ctx, path, pool, npy.ReadOptions{Tag: "numbers"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	fmt.Println(b)
	// Output: [0. 1. 2. 3. 4. 5.]
}

// Read some rows of a file.
func ExampleFile_ReadRows() {
	whole, err := usmarray.FromPinnedSlice([]int32{1, 2, 3, 4, 5, 6, 7, 8}, []int{4, 2})
	if err != nil {
		log.Fatal(err)
	}
	defer whole.Release()
	var stream bytes.Buffer
	if err := npy.Write(context.Background(), &stream, whole); err != nil {
		log.Fatal(err)
	}

	f, err := npy.NewFile(bytes.NewReader(stream.Bytes()), int64(stream.Len())) // npy.Open for a path
	if err != nil {
		log.Fatal(err)
	}
	h := f.Header()
	fmt.Println(h.DataType, h.Shape, h.NBytes, "bytes")
	rows, err := f.ReadRows(context.Background(), memmgr.Host(), 1, 3, npy.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Release()
	fmt.Println(rows)
	// Output:
	// int32 [4 2] 32 bytes
	// [[3 4]
	//  [5 6]]
}
