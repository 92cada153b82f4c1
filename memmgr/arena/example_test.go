package arena_test

import (
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A request with the tenant of its client and a limit of its own. Its arrays need no release.
// Results that outlive the request are retained.
func Example() {
	pool := memmgr.NewPool(memmgr.Host())
	defer pool.Close()
	client, err := pool.NewTenant("client", memmgr.TenantOptions{Hard: 1 << 30})
	if err != nil {
		log.Fatal(err)
	}

	handle := func(id string, values []float32) (*usmarray.Array, error) {
		a := arena.New(arena.Options{Name: id, Limit: 64 << 10})
		defer func() {
			if left := a.End(); left.Blocks != 0 {
				log.Printf("request %s: %v", id, left)
			}
		}()
		memory := a.Over(client)
		x, err := usmarray.FromSlice(memory, values, nil)
		if err != nil {
			return nil, err
		}
		sum := float32(0)
		for _, v := range values {
			sum += v
		}
		answer, err := usmarray.Full(memory, usmarray.Float32, x.Shape(), sum)
		if err != nil {
			return nil, err
		}
		a.Keep(answer)
		return answer, nil
	}

	answer, err := handle("7", []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	_, err = handle("8", make([]float32, 20000))
	fmt.Println(err)
	fmt.Println("blocks of the client:", client.Stats().Allocation.Current)
	answer.Release()
	fmt.Println("after the answer:", client.Stats().Allocation.Current)
	// Output:
	// [6. 6. 6.]
	// usmarray: FromSlice: memmgr: out of memory: asked for 78.12 KiB of host memory by tenant "8", rounded to 78.12 KiB, limit 64 KiB: the arena's limit is reached; release buffers, trim the pool, or raise the limit
	// blocks of the client: 1
	// after the answer: 0
}
